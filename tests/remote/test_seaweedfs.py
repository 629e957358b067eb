"""Real requests to SeaweedFS: S3's, which are signed, and those of gs://, which reads without credentials.

Google's XML API, which obstore uses, has S3's GET and HEAD. None of Google's own protocol can be installed here: of the
emulators on PyPI none answers HEAD and states ETags, without which obstore reads no object. So what is not tested is
how Google's credentials are exchanged for tokens.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from obstore import put
from obstore.exceptions import BaseError
from obstore.store import S3Store

from loadstone import open_h5ad
from loadstone.remote import objects
from tests import tiny
from tests.conftest import until
from tests.remote.same import assert_same_minibatches

WEED = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
BUCKETS = ("cells", "public")
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
    """The options of the server. Its bucket "cells" takes only requests that are signed with KEYS; "public" takes all.

    Both have the tiny data set.
    """
    if WEED is None:
        pytest.skip("SeaweedFS is not installed")
    folder = tmp_path_factory.mktemp("weed")
    credentials = [{"accessKey": KEYS["access_key_id"], "secretKey": KEYS["secret_access_key"]}]
    identity = {"name": "user", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
    anyone = {"name": "anonymous", "actions": ["Read:public", "List:public"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity, anyone]}))
    ports = dict(zip(("master", "volume", "filer", "s3", "mg", "vg", "fg", "sg"), free_ports(8), strict=True))
    command = [
        WEED, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", "-filer", "-s3",
        f"-s3.config={folder / 's3.json'}", f"-master.port={ports['master']}", f"-master.port.grpc={ports['mg']}",
        f"-volume.port={ports['volume']}", f"-volume.port.grpc={ports['vg']}", f"-filer.port={ports['filer']}",
        f"-filer.port.grpc={ports['fg']}", f"-s3.port={ports['s3']}", f"-s3.port.grpc={ports['sg']}",
        "-master.volumeSizeLimitMB=64", "-volume.max=8", "-s3.port.iceberg=0", "-s3.port.lance=0",
    ]  # fmt: skip
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        until(lambda: answers(ports["s3"]) and answers(ports["filer"]), 180)
        service = {"endpoint": f"http://127.0.0.1:{ports['s3']}", "region": "us-east-1", "allow_http": True, **KEYS}
        _make_buckets(service["endpoint"])
        for bucket in BUCKETS:
            _fill(_store(bucket, service), tiny.write(folder / bucket))
        yield service
    finally:
        server.kill()  # asked to end, it takes half a minute
        server.wait()


def _store(bucket: str, service: dict) -> S3Store:
    config = {name: value for name, value in service.items() if name != "allow_http"}
    return S3Store(bucket, config=config, client_options={"allow_http": True})


def _fill(store: S3Store, files: Path) -> None:
    """Waits until the bucket can be written to, and puts the files into its folder "below"."""

    def is_ready() -> bool:
        try:
            put(store, "ready", b"yes")
        except BaseError:
            return False
        return True

    until(is_ready, 180)
    for path in files.iterdir():
        put(store, f"below/{path.name}", path.read_bytes())


def _make_buckets(endpoint: str) -> None:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1",
        aws_access_key_id=KEYS["access_key_id"], aws_secret_access_key=KEYS["secret_access_key"],
        config=Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}),
    )  # fmt: skip

    def made(bucket: str) -> bool:
        try:
            client.create_bucket(Bucket=bucket)
        except ClientError as error:  # an answer that came too late to an earlier request made it too
            return error.response["Error"]["Code"].startswith("BucketAlready")
        except BotoCoreError:
            return False
        return True

    for bucket in BUCKETS:
        until(partial(made, bucket), 180)


URLS = [f"s3://cells/below/part{i}.h5ad" for i in range(len(tiny.LENGTHS))]
OF_GOOGLE = [url.replace("s3://cells", "gs://public") for url in URLS]


@pytest.fixture
def google(seaweed: dict) -> dict:
    """The options by which gs:// reads from SeaweedFS."""
    return {"base_url": seaweed["endpoint"], "skip_signature": True, "allow_http": True}


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


def test_minibatches_of_google_storage_are_those_of_the_disk(google: dict, tmp_path: Path) -> None:
    assert_same_minibatches(sorted(tiny.write(tmp_path / "set").iterdir()), OF_GOOGLE, storage=google, index=tmp_path)


def test_an_object_of_google_storage_that_changes_is_an_error(seaweed: dict, google: dict, tmp_path: Path) -> None:
    (path, *_) = sorted(tiny.write(tmp_path / "set").iterdir())
    store = _store("public", seaweed)
    put(store, "changing.h5ad", path.read_bytes())
    with closing(open_h5ad("gs://public/changing.h5ad", storage=google, index=tmp_path)) as matrix:
        put(store, "changing.h5ad", path.read_bytes()[::-1])
        with pytest.raises(OSError, match=r"gs://public/changing\.h5ad has changed since it was opened; open it again"):
            matrix[np.arange(3)]


def test_what_google_storage_does_not_give_is_one_error(google: dict, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gs://public/none\.h5ad does not exist"):
        open_h5ad("gs://public/none.h5ad", storage=google, index=tmp_path)
    with pytest.raises(PermissionError, match="may not be read with these credentials"):
        open_h5ad("gs://cells/below/part0.h5ad", storage=google, index=tmp_path)
    with pytest.raises(ValueError, match=r"gs://public/below cannot be opened: .*service account"):
        open_h5ad(OF_GOOGLE, storage=google | {"service_account_key": "none"}, index=tmp_path)
    with pytest.raises(OSError, match=r"takes storage=\{'allow_http': True\}"):
        open_h5ad(OF_GOOGLE, storage=google | {"allow_http": False}, index=tmp_path)


def test_missing_credentials_of_a_machine_are_one_error(
    google: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOST", "ROOT", "IP"):
        monkeypatch.setenv(f"GCE_METADATA_{name}", "127.0.0.1:9")  # where nothing answers
    monkeypatch.setattr(objects, "CREDENTIALS_PATIENCE_S", 0.1)
    with pytest.raises(PermissionError, match="may not be read with these credentials"):
        open_h5ad(OF_GOOGLE, storage=google | {"skip_signature": False}, index=tmp_path)
