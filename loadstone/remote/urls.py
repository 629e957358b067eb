"""URLs of objects, and the stores that hold them."""

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from loadstone.reading.validate import one_line

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "http", "https")
CLIENT_OPTIONS = {
    *("allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "default_headers"),
    *("http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle"),
    *("http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes"),
    *("proxy_url", "randomize_addresses", "read_timeout", "root_certificate", "timeout", "user_agent"),
}
"""The options of `storage` that are the HTTP client's; all others are the store's."""
ACCOUNT = re.compile(r"abfss?://[a-z0-9-]+@[a-z0-9.-]+/")
"""The beginning of a URL of Azure's that names the container and, after @, the account."""
NO_RETRIES = {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}  # `objects` makes them, and counts them

Storage = Mapping[str, Any]


def is_url(path: object) -> bool:
    """Whether the path is the URL of an object: text such as "s3://bucket/plate1.h5ad". ValueError for other URLs."""
    if not isinstance(path, str) or not (scheme := re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", path)):
        return False
    if scheme[1].lower() not in SCHEMES:
        raise ValueError(f"{path} begins with {scheme[0]}; what can be read are {'://, '.join(SCHEMES)}://, and paths")
    return True


def parent(url: str) -> tuple[str, str]:
    """(the URL of the folder that holds an object, the name of the object).

    ValueError if `url` names no object, or if it holds a user, a password or a signature.
    """
    if re.search("[?@#]", ACCOUNT.sub("", url, count=1)):
        raise ValueError("a URL holds no user, password or signature here: state credentials by storage= or otherwise")
    folder, _, name = url.rstrip("/").rpartition("/")
    if folder.endswith("/") or folder.endswith(":") or not name:
        raise ValueError(f"{url} names no object: after the bucket, its key is missing")
    return folder, name


def open_store(folder: str, storage: Storage) -> Any:
    """The store of the objects below the URL `folder`, as an `obstore` store.

    storage: options of the store and its HTTP client, by the names that obstore gives them. What they do not say comes
    from the environment, as AWS_ENDPOINT_URL does; keys of S3 also from the profiles that boto3 reads, if it is
    installed. Raises ValueError for an option or a URL that obstore does not accept, ImportError without obstore.
    """
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as error:
        raise ImportError("URLs are read by obstore: pip install 'loadstone[remote]'") from error
    client = {name: value for name, value in storage.items() if name in CLIENT_OPTIONS}
    config = {name: value for name, value in storage.items() if name not in CLIENT_OPTIONS}
    if client and _is_true(os.environ.get("AWS_ALLOW_HTTP")):
        client = {"allow_http": True} | client  # which obstore reads only if there are no options of the client
    if folder.startswith("http"):
        if config and "amazonaws.com" not in folder and "core.windows.net" not in folder:
            raise ValueError(f"storage: {', '.join(config)} is no option of a plain server ({folder})")
    elif folder.startswith("s3") and _needs_profile(config):
        from obstore.auth.boto3 import Boto3CredentialProvider

        config["credential_provider"] = Boto3CredentialProvider()
    try:
        options: Any = {"client_options": client or None, "retry_config": NO_RETRIES, **config}
        return from_url(folder, **options)
    except (BaseError, TypeError, ValueError) as error:
        raise ValueError(f"{folder} cannot be opened: {redacted(error)}") from error


def _is_true(text: str | None) -> bool:
    return (text or "").lower() in ("1", "true", "yes", "on", "t", "y")


def _needs_profile(config: Mapping[str, Any]) -> bool:
    """Whether the keys of S3 are to come from a profile: none are given otherwise, and there is one."""
    from importlib.util import find_spec

    given = {"access_key_id", "aws_access_key_id", "skip_signature", "aws_skip_signature", "credential_provider"}
    if given & set(config) or "AWS_ACCESS_KEY_ID" in os.environ or "AWS_SKIP_SIGNATURE" in os.environ:
        return False
    file = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")).expanduser()
    return ("AWS_PROFILE" in os.environ or file.exists()) and find_spec("boto3") is not None


def redacted(error: BaseException) -> str:
    """The message of an error of obstore in one line, without its internal form and what may be secret in URLs."""
    text = one_line(error).partition(" Debug source")[0]
    return re.sub(r"://[^/@\s]*@", "://", re.sub(r"\?[^\s\"')]*", "", text))
