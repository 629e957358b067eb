"""Requests to Azurite, Microsoft's server of Azure's protocol, which are signed: az:// gives what a disk gives."""

import base64
import email.utils
import hashlib
import hmac
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from obstore import put
from obstore.store import AzureStore

from harness.machine import host
from loadstone import obs_codes, open_h5ad
from loadstone.remote import objects
from tests import tiny
from tests.conftest import until
from tests.remote.same import assert_same_minibatches
from tests.remote.test_seaweedfs import answers, free_ports

AZURITE = shutil.which(
    "azurite-blob", path=f"{host.ROOT / '.azurite/node_modules/.bin'}{os.pathsep}{os.environ['PATH']}"
)
ACCOUNT, KEY = "atlases", base64.b64encode(b"a-key").decode()
FILES = [f"part{i}.h5ad" for i in range(len(tiny.LENGTHS))]
URLS = [f"az://cells/below/{name}" for name in FILES]


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    """The options of an account whose container "cells" has the tiny data set, and which takes only signed requests."""
    if AZURITE is None:
        reason = "Azurite is not installed: npm install --prefix .azurite azurite"
        (pytest.fail if "azurite" in os.environ.get("REQUIRE", "").split(",") else pytest.skip)(reason)
    folder = tmp_path_factory.mktemp("azurite")
    (port,) = free_ports(1)
    command = [AZURITE, "--inMemoryPersistence", "--silent", "--disableTelemetry", f"--blobPort={port}"]
    accounts = os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=accounts)
    try:
        until(lambda: server.poll() is not None or answers(port), 180)
        service = {"endpoint": f"http://127.0.0.1:{port}/{ACCOUNT}", "account_name": ACCOUNT, "account_key": KEY}
        _make_container(service["endpoint"])
        for path in tiny.write(folder / "set").iterdir():
            put(_store(service), f"below/{path.name}", path.read_bytes())
        yield service | {"allow_http": True}
    finally:
        server.kill()
        server.wait()


def _store(service: dict) -> AzureStore:
    config = {name: value for name, value in service.items() if name != "allow_http"}
    return AzureStore("cells", config=config, client_options={"allow_http": True})


def _make_container(endpoint: str) -> None:
    """Makes the container "cells", which obstore does not."""
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
    signed += [f"/{ACCOUNT}/{ACCOUNT}/cells", "restype:container"]
    signature = hmac.digest(base64.b64decode(KEY), "\n".join(signed).encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
    request = urllib.request.Request(f"{endpoint}/cells?restype=container", method="PUT", headers=headers)
    urllib.request.urlopen(request).close()


def test_minibatches_are_those_of_the_disk(azurite: dict, tmp_path: Path) -> None:
    assert_same_minibatches(sorted(tiny.write(tmp_path / "set").iterdir()), URLS, storage=azurite, index=tmp_path)


def test_the_index_can_lie_in_the_container(azurite: dict) -> None:
    for _ in range(2):
        with closing(open_h5ad(URLS, storage=azurite, index="az://cells/index")) as matrix:
            np.testing.assert_array_equal(matrix[np.arange(tiny.N)].toarray(), tiny.truth())


@pytest.mark.parametrize("beginning", ["azure://cells", "abfs://cells", "adl://cells"])
def test_other_names_of_the_scheme_give_the_same_rows(azurite: dict, tmp_path: Path, beginning: str) -> None:
    urls = [url.replace("az://cells", beginning) for url in URLS]
    with closing(open_h5ad(urls, storage=azurite, index=tmp_path)) as matrix:
        np.testing.assert_array_equal(matrix[np.arange(tiny.N)].toarray(), tiny.truth())


def test_the_account_may_be_in_the_url(azurite: dict, tmp_path: Path) -> None:
    storage = {name: value for name, value in azurite.items() if name != "account_name"}
    urls = [url.replace("az://cells", f"abfs://cells@{ACCOUNT}.dfs.core.windows.net") for url in URLS]
    with closing(open_h5ad(urls, storage=storage, index=tmp_path)) as matrix:
        np.testing.assert_array_equal(matrix[np.arange(tiny.N)].toarray(), tiny.truth())


def test_labels_are_read_from_objects(azurite: dict, tmp_path: Path) -> None:
    local = obs_codes(sorted(tiny.write(tmp_path / "set").iterdir()), "drug")
    remote = obs_codes(URLS, "drug", storage=azurite)
    np.testing.assert_array_equal(remote.codes, local.codes)


def test_an_object_that_changes_is_an_error(azurite: dict, tmp_path: Path) -> None:
    (path, *_) = sorted(tiny.write(tmp_path / "set").iterdir())
    put(_store(azurite), "changing.h5ad", path.read_bytes())
    with closing(open_h5ad("az://cells/changing.h5ad", storage=azurite, index=tmp_path)) as matrix:
        put(_store(azurite), "changing.h5ad", path.read_bytes()[::-1])
        with pytest.raises(OSError, match=r"az://cells/changing\.h5ad has changed since it was opened; open it again"):
            matrix[np.arange(3)]


WRONG_KEY = base64.b64encode(b"wrong-secret").decode()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"account_key": WRONG_KEY}, PermissionError, "may not be read with these credentials"),
        ({"account_key": "no base 64!"}, ValueError, "az://cells/below cannot be opened: .*Invalid Access Key"),
        ({"skip_signature": True}, PermissionError, "may not be read with these credentials"),
        ({"account_name": None}, ValueError, "az://cells/below cannot be opened: .*Account must be specified"),
        ({"allow_http": False}, OSError, r"takes storage=\{'allow_http': True\}"),
        ({"account_key": None, "msi_endpoint": "http://127.0.0.1:9/"}, PermissionError, "credentials"),
    ],
)
def test_wrong_options_are_one_error(
    azurite: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict, error: type, message: str
) -> None:
    monkeypatch.setattr(objects, "CREDENTIALS_PATIENCE_S", 0.1)
    storage = {name: value for name, value in (azurite | options).items() if value is not None}
    with pytest.raises(error, match=message) as caught:
        open_h5ad(URLS, storage=storage, index=tmp_path)
    assert WRONG_KEY not in str(caught.value)
    assert KEY not in str(caught.value)


def test_what_is_missing_is_one_error(azurite: dict, tmp_path: Path) -> None:
    for url in ("az://cells/none.h5ad", "az://no-container/none.h5ad"):
        with pytest.raises(FileNotFoundError, match=f"{url} does not exist"):
            open_h5ad(url, storage=azurite, index=tmp_path)
