"""LZ4 streams and Blosc chunks, valid and malformed, for the tests of the decoder."""

import random

import numpy as np

from loadstone.codecs import lz4


def decode_bytewise(stream: bytes, n: int) -> bytes | None:
    """Reference decoder: the `n` bytes of an LZ4 stream, decoded byte by byte. None if the stream is damaged."""
    out, rest = bytearray(), iter(stream)

    def length(first: int) -> int:
        more = 255 if first == lz4.MORE else 0
        while more == 255:
            more = next(rest)
            first += more
        return first

    try:
        while True:
            lengths = next(rest)
            for _ in range(length(lengths >> 4)):
                out.append(next(rest))
            low = next(rest, None)
            if low is None:
                return bytes(out) if len(out) == n else None
            distance = low | next(rest) << 8
            if not 0 < distance <= len(out):
                return None
            for _ in range(length(lengths & 15) + lz4.LEAST_MATCH):
                out.append(out[-distance])
            if len(out) > n:
                return None
    except StopIteration:
        return None


def length_code(n: int) -> tuple[int, bytes]:
    """A length as LZ4 writes it: (the four bits in the token; the bytes that follow it)."""
    return (n, b"") if n < lz4.MORE else (lz4.MORE, b"\xff" * ((n - lz4.MORE) // 255) + bytes([(n - lz4.MORE) % 255]))


def stream_of(rng: random.Random, n: int, flaw: str) -> bytes:
    """A random LZ4 stream that decodes to `n` bytes if `flaw` is "", or else has this defect (one of FLAWS)."""
    parts, out, at = [], 0, rng.randrange(n)
    while n - out > 20 and rng.random() < 0.995:
        literals = min(rng.choice([0, 0, 1, 3, 8, 9, 14, 15, 300]), n - out - 12) or (out == 0)
        match = min(rng.choice([4, 4, 5, 16, 17, 19, 40, 700]), n - out - literals - rng.choice([0, 1, 5]))
        distance = min(out + literals, rng.choice([1, 2, 3, 7, 8, 15, 16, 17, 5_000]))
        if flaw and out >= at:
            distance = {"distance 0": 0, "too far": out + literals + 1}.get(flaw, distance) & 0xFFFF
            match += n if flaw == "match too long" else 0
            literals += n if flaw == "literals too long" else 0
            flaw = ""
        (high, more_literals), (low, more_match) = length_code(literals), length_code(match - lz4.LEAST_MATCH)
        literal = rng.randbytes(min(literals, n))
        parts.append(bytes([high << 4 | low]) + more_literals + literal + distance.to_bytes(2, "little") + more_match)
        out += literals + match
    high, more_literals = length_code(max(0, n - out))
    parts.append(bytes([high << 4]) + more_literals + rng.randbytes(max(0, n - out)))
    stream = b"".join(parts)
    return {"cut": stream[: rng.randrange(len(stream))], "more": stream + b"\0"}.get(flaw, stream)


FLAWS = ["", "", "", "distance 0", "too far", "match too long", "literals too long", "cut", "more"]


def chunk_of(rng: random.Random) -> tuple[str, bytes, bytes | None, int]:
    """A random Blosc chunk that the library did not write.

    Returns (its flaw, or "whole"; the chunk; the decoded bytes, None if it cannot be decoded; the stated decoded size).
    """
    width, flaw = rng.choice([1, 2, 4, 8]), rng.choice(FLAWS)
    is_shuffled, block = rng.random() < 0.7, width * rng.choice([1, 2, 40, 127, 128, 129, 600])
    wanted = rng.randint(1, min(60, 12_000 // block) * block // width) * width
    is_split = block >= lz4.LEAST_SPLIT * width
    n_blocks = -(-wanted // block)
    flawed, places, parts, decoded = rng.randrange(n_blocks), [], [], []
    for i in range(n_blocks):
        n = min(block, wanted - i * block)
        places.append(lz4.HEAD + 4 * n_blocks + sum(map(len, parts)))
        splits, planes = width if n == block and is_split else 1, []
        for _ in range(splits):
            plain = n // splits
            stream = stream_of(rng, plain, flaw if i == flawed else "")
            if len(stream) == plain or rng.random() < 0.1:
                stream = rng.randbytes(plain)
            parts.append(len(stream).to_bytes(4, "little") + stream)
            planes.append(stream if len(stream) == plain else decode_bytewise(stream, plain))
        whole = None if None in planes else b"".join(planes)
        if whole is not None and is_shuffled:
            whole = np.frombuffer(whole, np.uint8).reshape(width, -1).T.tobytes()
        decoded.append(whole)
    body = b"".join([*(place.to_bytes(4, "little") for place in places), *parts])
    flags = lz4.LZ4 << lz4.FORMAT | is_shuffled * lz4.SHUFFLED | (0 if is_split else rng.choice([0, lz4.NOT_SPLIT]))
    head = bytes([lz4.VERSION, lz4.LZ4_VERSION, flags, width])
    sizes = np.array([wanted, block, lz4.HEAD + len(body)], "<u4").tobytes()
    return flaw or "whole", head + sizes + body, None if None in decoded else b"".join(decoded), wanted


def with_wrong_field(rng: random.Random, chunk: bytes) -> bytes:
    """A copy of the chunk with one field of the header, or four bytes after it (block offsets, sizes), overwritten."""
    at = rng.choice([2, 3, 4, 8, 8, 8, 12, *range(lz4.HEAD, min(len(chunk) - 4, 60), 4)])
    n = 1 if at < 4 else 4
    number = rng.choice([0, 1, 2, 4, 8, 127, 128, len(chunk), len(chunk) - 1, 2**31 - 1, 2**31, 2**32 - 1])
    return chunk[:at] + (number % (1 << 8 * n)).to_bytes(4, "little")[:n] + chunk[at + n :]
