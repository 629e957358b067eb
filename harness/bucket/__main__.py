"""Serves the files below a folder as a bucket of S3, for measurements and tests.

    python -m harness.bucket FOLDER [--host HOST] [--port PORT] [--behaviour JSON]

It prints its port, and serves until it is ended. JSON: the fields of `server.Behaviour`, for example
{"ttfb_s": 0.03, "faults": {"unavailable": 0.01}}. An object has the URL s3://ANY-BUCKET/path/below/FOLDER; clients need
its endpoint, http://HOST:PORT, and any keys.
"""

import argparse
import asyncio
import json
from contextlib import suppress
from pathlib import Path

from harness.bucket.server import Behaviour, serve
from harness.machine import process_usage


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.bucket", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="its files are the objects")
    parser.add_argument("--host", default="127.0.0.1", help="the address (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="the port (default: a free one)")
    parser.add_argument("--behaviour", type=json.loads, default={}, help='JSON, for example {"ttfb_s": 0.03}')
    options = parser.parse_args()
    process_usage.die_with_parent()
    with suppress(KeyboardInterrupt):
        asyncio.run(
            serve(
                options.folder,
                Behaviour(**options.behaviour),
                options.host,
                options.port,
                lambda port: print(port, flush=True),
            )
        )


if __name__ == "__main__":
    main()
