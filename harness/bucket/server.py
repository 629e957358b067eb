"""A server of objects for measurements: the files below a folder, as a bucket of S3, over HTTP on one machine.

It answers HEAD, GET of ranges, PUT and ListObjectsV2, ignores signatures, and waits before each answer as a distant
store does. It counts what it serves, and makes the faults that it is told to.
"""

import asyncio
import hashlib
import json
import os
import random
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PIECE = 1 << 16  # bytes that are written at a time
COUNTERS = "/-/counters"
FAULTS = ("unavailable", "short", "cut", "reset", "stalled", "refused")
MOST_HEADER = 1 << 16  # bytes
STALL_S = 3_600.0


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How the server answers.

    ttfb_s: the time from a request to the first byte of its answer. connection_bytes_per_s: the rate of each
    connection; None: no limit. link_bytes_per_s: the rate of all connections together; None: no limit.
    faults: the probability of each fault, by its name in FAULTS, and `seed` of their draw. "unavailable": status 503.
    "short": an answer with fewer bytes than asked for, as after the end of an object. "cut": the connection ends within
    an answer. "reset": the connection is reset before the answer. "stalled": the answer never comes. "refused": status
    400, as for a wrong region.
    """

    ttfb_s: float = 0.0
    connection_bytes_per_s: float | None = None
    link_bytes_per_s: float | None = None
    faults: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0


@dataclass(kw_only=True)
class Counters:
    """What was served. requests: by method; bytes: of the bodies of answers; faults: by name."""

    requests: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    connections: int = 0
    faults: dict[str, int] = field(default_factory=dict)


class Bucket:
    """The objects: files below `folder`, by their path relative to it."""

    def __init__(self, folder: Path, behaviour: Behaviour) -> None:
        self.folder, self.behaviour, self.counters = folder.resolve(), behaviour, Counters()
        self.random = random.Random(behaviour.seed)
        self.link_free_at = 0.0
        self.open: dict[str, Entry] = {}

    def entry(self, key: str) -> "Entry | None":
        """The object of a key, as its file is now; None if there is no such file below the folder."""
        known = self.open.get(key)
        path = known.path if known else (self.folder / key).resolve()
        if not known and not (path.is_file() and path.is_relative_to(self.folder)):
            return None
        try:
            status = os.stat(path)
            if known and known.status[:9] == status[:9] and known.status.st_mtime_ns == status.st_mtime_ns:
                return known
            self.forget(key)
            if not stat.S_ISREG(status.st_mode):
                return None
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            self.forget(key)
            return None
        modified = formatdate(status.st_mtime, usegmt=True)
        about = f"ETag: {etag(path)}\r\nLast-Modified: {modified}\r\nAccept-Ranges: bytes\r\n"
        self.open[key] = Entry(path, status, fd, etag(path), about)
        return self.open[key]

    def forget(self, key: str) -> None:
        if known := self.open.pop(key, None):
            os.close(known.fd)

    def fault(self) -> str | None:
        draw = self.random.random()
        for name, probability in self.behaviour.faults.items():
            if draw < probability:
                self.counters.faults[name] = self.counters.faults.get(name, 0) + 1
                return name
            draw -= probability
        return None


class Entry(NamedTuple):
    """An object. status, fd: of its file. about: the headers that every answer about it has."""

    path: Path
    status: os.stat_result
    fd: int
    tag: str
    about: str


def etag(path: Path) -> str:
    status = path.stat()
    return '"' + hashlib.md5(f"{status.st_ino}/{status.st_size}/{status.st_mtime_ns}".encode()).hexdigest() + '"'


class Connection(asyncio.Protocol):
    """One connection, which serves one request at a time."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.received = b""
        self.requests: asyncio.Queue[tuple[str, str, dict[str, str], bytes]] = asyncio.Queue()
        self.can_write = asyncio.Event()
        self.can_write.set()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.bucket.counters.connections += 1
        self.serving = asyncio.ensure_future(self.serve())

    def connection_lost(self, error: Exception | None) -> None:
        self.serving.cancel()

    def pause_writing(self) -> None:
        self.can_write.clear()

    def resume_writing(self) -> None:
        self.can_write.set()

    def data_received(self, data: bytes) -> None:
        self.received += data
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            first, *lines = self.received[:end].decode("latin-1").split("\r\n")
            headers = {
                name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
            }
            length = int(headers.get("content-length", 0))
            if len(self.received) < end + 4 + length:
                if headers.get("expect") == "100-continue":
                    self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return
            body, self.received = self.received[end + 4 : end + 4 + length], self.received[end + 4 + length :]
            method, target, _ = first.split(" ", 2)
            self.requests.put_nowait((method, target, headers, body))
        if len(self.received) > MOST_HEADER and b"\r\n\r\n" not in self.received:
            self.transport.abort()

    async def serve(self) -> None:
        while True:
            method, target, headers, body = await self.requests.get()
            if target == COUNTERS:
                self.answer("200 OK", json.dumps(asdict(self.bucket.counters)).encode())
                continue
            self.bucket.counters.requests[method] = self.bucket.counters.requests.get(method, 0) + 1
            fault = self.bucket.fault()
            await asyncio.sleep(STALL_S if fault == "stalled" else self.bucket.behaviour.ttfb_s)
            if fault == "reset":
                self.transport.abort()
            elif fault == "unavailable":
                self.answer("503 Slow Down", b"<Error><Code>SlowDown</Code></Error>")
            elif fault == "refused":
                self.answer("400 Bad Request", b"<Error><Code>AuthorizationHeaderMalformed</Code></Error>")
            else:
                await self.respond(method, target, headers, body, fault)

    async def respond(self, method: str, target: str, headers: Mapping[str, str], body: bytes, fault: Any) -> None:
        parts = urlsplit(target)
        _, _, key = unquote(parts.path).lstrip("/").partition("/")  # after the name of the bucket
        if method == "PUT" and key:
            self.put(key, body)
        elif method == "GET" and "list-type" in parse_qs(parts.query):
            self.answer("200 OK", listing(self.bucket.folder, parse_qs(parts.query)), "application/xml")
        elif method not in ("GET", "HEAD"):
            self.answer("405 Method Not Allowed", b"")
        elif (entry := self.bucket.entry(key)) is None:
            self.answer("404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>", head=method == "HEAD")
        else:
            await self.object(method, entry, headers, fault)

    def put(self, key: str, body: bytes) -> None:
        path = (self.bucket.folder / key).resolve()
        if not path.is_relative_to(self.bucket.folder):
            self.answer("400 Bad Request", b"")
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.partial")
        aside.write_bytes(body)
        aside.rename(path)
        self.answer("200 OK", b"", more=f"ETag: {etag(path)}\r\n")

    async def object(self, method: str, entry: Entry, headers: Mapping[str, str], fault: str | None) -> None:
        size, tag, about = entry.status.st_size, entry.tag, entry.about
        if headers.get("if-match", tag) not in (tag, "*"):
            self.answer("412 Precondition Failed", b"", head=method == "HEAD")
            return
        start, stop, status = 0, size, "200 OK"
        if "range" in headers:
            start, stop = of_range(headers["range"], size)
            if not 0 <= start < stop:
                self.answer("416 Range Not Satisfiable", b"", more=f"Content-Range: bytes */{size}\r\n")
                return
            status = "206 Partial Content"
        if fault == "short" and method == "GET" and "range" in headers:
            stop = start + max(1, (stop - start) // 2)
        if status.startswith("206"):
            about += f"Content-Range: bytes {start}-{stop - 1}/{size}\r\n"
        head = f"HTTP/1.1 {status}\r\nContent-Length: {stop - start}\r\n{about}\r\n".encode()
        self.transport.write(head)
        if method == "GET":
            await self.body(entry.fd, start, stop, cut=fault == "cut")

    async def body(self, fd: int, start: int, stop: int, cut: bool) -> None:
        """Writes bytes of a file, no faster than the connection and the link allow. cut: ends in the middle."""
        loop, behaviour = asyncio.get_running_loop(), self.bucket.behaviour
        free_at = loop.time()
        for place in range(start, stop, PIECE):
            piece = os.pread(fd, min(PIECE, stop - place), place)
            if cut and place + PIECE >= (start + stop) // 2:
                self.transport.write(piece[: len(piece) // 2])
                self.transport.close()
                return
            await self.can_write.wait()
            self.transport.write(piece)
            self.bucket.counters.bytes += len(piece)
            if behaviour.connection_bytes_per_s:
                free_at = max(free_at, loop.time()) + len(piece) / behaviour.connection_bytes_per_s
            if behaviour.link_bytes_per_s:
                link_free_at = max(self.bucket.link_free_at, loop.time())
                self.bucket.link_free_at = link_free_at + len(piece) / behaviour.link_bytes_per_s
            wait = max(free_at, self.bucket.link_free_at) - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)

    def answer(self, status: str, body: bytes, kind: str = "text/plain", head: bool = False, more: str = "") -> None:
        about = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode()
        self.transport.write(about if head else about + body)


def of_range(value: str, size: int) -> tuple[int, int]:
    """(start, stop) of a header `Range: bytes=...`; stop is exclusive, and at most the size of the object."""
    first, _, last = value.removeprefix("bytes=").partition("-")
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1 if last else size)


def listing(folder: Path, query: Mapping[str, list[str]]) -> bytes:
    """The answer to ListObjectsV2, in one page."""
    prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
    entries, folders = [], {}
    for path in sorted(folder.rglob("*")):
        key = path.relative_to(folder).as_posix()
        if not path.is_file() or not key.startswith(prefix):
            continue
        below, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
        if found:
            folders[prefix + below + delimiter] = None
            continue
        modified = datetime.fromtimestamp(int(path.stat().st_mtime), UTC).isoformat().replace("+00:00", ".000Z")
        entries.append(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{modified}</LastModified>"
            f"<ETag>{escape(etag(path))}</ETag><Size>{path.stat().st_size}</Size></Contents>"
        )
    common = "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Prefix>{escape(prefix)}</Prefix>'
        f"<KeyCount>{len(entries)}</KeyCount><IsTruncated>false</IsTruncated>{''.join(entries)}{common}</ListBucketResult>"
    ).encode()


async def serve(folder: Path, behaviour: Behaviour, host: str, port: int, started: Any) -> None:
    """Serves until it is cancelled. started(port): called when it accepts connections."""
    bucket = Bucket(folder, behaviour)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(bucket), host, port, backlog=1024)
    started(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()
