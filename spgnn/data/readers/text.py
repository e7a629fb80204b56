"""Open a text file, plain or gzip, as blocks of whole lines whose memory is bounded."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import FormatError, InputError

GZIP_MAGIC = b"\x1f\x8b"
BLOCK_BYTES = 1 << 22
MAX_LINE_BYTES = 1 << 23
# gzip makes at most 1032 bytes of one; real graph files stay below 50.
MAX_RATIO = 200
FREE_BYTES = 1 << 25


def is_gzip(path: Path) -> bool:
    """The file starts with gzip's two magic bytes."""
    with open(path, "rb") as file:
        return file.read(2) == GZIP_MAGIC


def peek(path: Path, n_bytes: int = 4096) -> bytes:
    """Return the first bytes of a file, unpacked; b"" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            raw = file.read(n_bytes)
        if raw[:2] == GZIP_MAGIC:
            return zlib.decompressobj(wbits=31).decompress(raw, n_bytes)
    except (OSError, zlib.error):
        return b""
    return raw


def text_bytes_bound(path: Path) -> int:
    """Return how many bytes of text the file can hold at most: its size, or 1032 times it for gzip."""
    size = path.stat().st_size
    return size * 1032 if is_gzip(path) else size


@contextmanager
def opened(path: Path):
    """Open for reading bytes; InputError if that fails, FormatError if the file is empty."""
    try:
        if path.is_file() and path.stat().st_size == 0:
            raise FormatError(f"{path}: the file is empty")
        file = open(path, "rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    with file:
        yield file


def line_blocks(path: Path, progress=None, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[bytes, int]]:
    """Yield (block, number of its first line, from 1): whole lines, about block_bytes at a time.

    Raises: FormatError for an empty file, damaged gzip, a line over 8 MiB and the file's size, or a
            gzip file that unpacks to more than 32 MiB and 200 times its size.
    """
    line, rest, longest = 1, b"", None
    for piece in _unpacked(path, progress, block_bytes):
        block = rest + piece
        cut = block.rfind(b"\n") + 1
        longest = longest or max(MAX_LINE_BYTES, path.stat().st_size)
        if len(block) - cut > longest:
            at = line + block.count(b"\n")
            raise FormatError(f"{path}:{at}: a line of over {longest >> 20} MiB; is this a text file?")
        block, rest = block[:cut], block[cut:]
        if block:
            yield block, line
            line += block.count(b"\n")
    if rest:
        yield rest, line


def comment_lines(marks: str) -> re.Pattern[bytes]:
    """Return the pattern of a run of comment and blank lines; in whole lines it matches whole lines."""
    line = rf"[ \t,\r\v\f]*+(?:[{marks}][^\n]*+)?"
    return re.compile(rf"(?:{line}\n)*+(?:{line}\Z)?".encode())


def read_json(path: Path):
    """Return the value of a JSON file; FormatError with its line where it is none."""
    try:
        with opened(path) as file:
            return json.loads(file.read())
    except (ValueError, RecursionError) as error:
        where = f"{path}:{error.lineno}" if isinstance(error, json.JSONDecodeError) else str(path)
        raise FormatError(f"{where}: not JSON: {error}; was the file cut off?") from None


def _unpacked(path, progress, block_bytes):
    """Yield the bytes of a plain or gzip file, block_bytes at a time, members of a gzip file one after another."""
    with opened(path) as file:
        total = path.stat().st_size
        packed = file.read(2) == GZIP_MAGIC
        file.seek(0)
        if not packed:
            while block := file.read(block_bytes):
                if progress:
                    progress(file.tell(), total)
                yield block
            return
        yield from _gunzipped(path, file, total, progress, block_bytes)


def _gunzipped(path, file, total, progress, block_bytes):
    stream, out_bytes, pending = zlib.decompressobj(wbits=31), 0, b""
    while True:
        pending = pending or file.read(1 << 16)
        if not pending:
            break
        if stream.eof:
            if not pending.strip(b"\0"):  # padding after the last member
                pending = b""
                continue
            stream = zlib.decompressobj(wbits=31)
        try:
            block = stream.decompress(pending, block_bytes)
        except zlib.error as error:
            raise FormatError(
                f"{path}: damaged gzip after {out_bytes} bytes of text: {error}; get the file again"
            ) from None
        pending = stream.unused_data if stream.eof else stream.unconsumed_tail
        out_bytes += len(block)
        if out_bytes > FREE_BYTES and out_bytes > MAX_RATIO * total:
            raise FormatError(
                f"{path}: {total} bytes unpack to more than {out_bytes}, over {MAX_RATIO} times as many; "
                f"if that is right, unpack it with gunzip first"
            )
        if progress:
            progress(file.tell(), total)
        if block:
            yield block
    if not stream.eof:
        raise FormatError(f"{path}: gzip data is cut off after {out_bytes} bytes of text; get the file again")
