"""The protocol of S3 with signed requests, by SeaweedFS, a real server."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from loadstone import open_h5ad
from tests import tiny
from tests.conftest import until

WEED = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
KEYS = {"access_key_id": "a-key", "secret_access_key": "a-secret"}


def free_ports(n: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    """The options of a bucket "cells" with the tiny data set, which takes only requests that are signed with KEYS."""
    if WEED is None:
        pytest.skip("SeaweedFS is not installed")
    folder = tmp_path_factory.mktemp("weed")
    credentials = [{"accessKey": KEYS["access_key_id"], "secretKey": KEYS["secret_access_key"]}]
    identity = {"name": "user", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    ports = dict(zip(("master", "volume", "filer", "s3", "mg", "vg", "fg", "sg"), free_ports(8), strict=True))
    command = [
        WEED, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", "-filer", "-s3",
        f"-s3.config={folder / 's3.json'}", f"-master.port={ports['master']}", f"-master.port.grpc={ports['mg']}",
        f"-volume.port={ports['volume']}", f"-volume.port.grpc={ports['vg']}", f"-filer.port={ports['filer']}",
        f"-filer.port.grpc={ports['fg']}", f"-s3.port={ports['s3']}", f"-s3.port.grpc={ports['sg']}",
        "-master.volumeSizeLimitMB=64", "-volume.max=8", "-s3.port.iceberg=0", "-s3.port.lance=0",
    ]  # fmt: skip
    from obstore import put
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        until(lambda: answers(ports["s3"]) and answers(ports["filer"]), 180)
        service = {"endpoint": f"http://127.0.0.1:{ports['s3']}", "region": "us-east-1", "allow_http": True, **KEYS}
        store = S3Store("cells", config={n: v for n, v in service.items() if n != "allow_http"},
                        client_options={"allow_http": True})  # fmt: skip

        def is_ready() -> bool:
            try:
                put(store, "ready", b"yes")
            except BaseError:
                return False
            return True

        _make_bucket(service["endpoint"])
        until(is_ready, 180)
        for path in tiny.write(folder / "set").iterdir():
            put(store, f"below/{path.name}", path.read_bytes())
        yield service
    finally:
        server.kill()  # asked to end, it takes half a minute
        server.wait()


def _make_bucket(endpoint: str) -> None:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1",
        aws_access_key_id=KEYS["access_key_id"], aws_secret_access_key=KEYS["secret_access_key"],
        config=Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}),
    )  # fmt: skip

    def made() -> bool:
        try:
            client.create_bucket(Bucket="cells")
        except ClientError as error:  # an answer that came too late to an earlier request made it too
            return error.response["Error"]["Code"].startswith("BucketAlready")
        except BotoCoreError:
            return False
        return True

    until(made, 180)


URLS = [f"s3://cells/below/part{i}.h5ad" for i in range(len(tiny.LENGTHS))]


def test_signed_requests_give_the_same_rows(seaweed: dict, tmp_path: Path) -> None:
    for index in (tmp_path, "s3://cells/index", "s3://cells/index"):
        with closing(open_h5ad(URLS, storage=seaweed, index=index)) as matrix:
            np.testing.assert_array_equal(matrix[np.arange(tiny.N)].toarray(), tiny.truth())


def test_a_wrong_key_is_one_error_without_the_key(seaweed: dict, tmp_path: Path) -> None:
    with pytest.raises(PermissionError, match="may not be read with these credentials") as caught:
        open_h5ad(URLS, storage=seaweed | {"secret_access_key": "wrong-secret"}, index=tmp_path)
    assert "secret" not in str(caught.value).replace("secret_access_key", "")


def test_keys_come_from_a_profile(seaweed: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    file.write_text(f"[atlas]\naws_access_key_id={KEYS['access_key_id']}\n"
                    f"aws_secret_access_key={KEYS['secret_access_key']}\n")  # fmt: skip
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "atlas")
    without = {name: value for name, value in seaweed.items() if name not in KEYS}
    with closing(open_h5ad(URLS, storage=without, index=tmp_path / "index")) as matrix:
        np.testing.assert_array_equal(matrix[np.arange(tiny.N)].toarray(), tiny.truth())


def test_what_is_missing_is_one_error(seaweed: dict, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"s3://cells/none\.h5ad does not exist"):
        open_h5ad("s3://cells/none.h5ad", storage=seaweed, index=tmp_path)
