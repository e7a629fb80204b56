"""Open a text file, plain or packed by gzip, xz or bzip2, as blocks of whole lines whose memory is bounded."""

from __future__ import annotations

import bz2
import json
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from ...atomic import open_regular
from ...errors import FormatError, InputError

Progress = Callable[[int, int], None] | None  # called with (done_bytes, total_bytes)
PACKED: dict[bytes, tuple[str, Callable[[], Any]]] = {  # first bytes: (name, () -> decompressor)
    b"\x1f\x8b": ("gzip", lambda: zlib.decompressobj(wbits=31)),
    b"\xfd7zXZ\0": ("xz", lambda: lzma.LZMADecompressor(memlimit=1 << 28)),
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
}
PACKED_ENDINGS = (".gz", ".xz", ".bz2")
DAMAGED = (zlib.error, lzma.LZMAError, OSError, EOFError)
STARTS = {  # of files that are no text of lines: what they are, and what to do
    b"\xff\xfe": "is text in UTF-16; write it in UTF-8: iconv -f UTF-16 -t UTF-8 {} > FILE",
    b"\xfe\xff": "is text in UTF-16; write it in UTF-8: iconv -f UTF-16 -t UTF-8 {} > FILE",
    b"version https://git-lfs": "is a pointer of Git LFS, not the file itself; get it with `git lfs pull`",
    b"<!doctype": "is a page of the web, not the file itself; get it again",
    b"<html": "is a page of the web, not the file itself; get it again",
}
BLOCK_BYTES = 1 << 22
MAX_LINE_BYTES = 1 << 20
# A small file may unpack to FREE_BYTES, a larger one to so many times its size: gzip makes at most 1032 bytes of one,
# real graph files stay below 50.
MAX_RATIO = 200
FREE_BYTES = 1 << 25


def without_packing(name: str) -> str:
    """Return the name of a file without .gz, .xz or .bz2."""
    return next((name.removesuffix(ending) for ending in PACKED_ENDINGS if name.endswith(ending)), name)


def packing_of(raw: bytes) -> tuple[str, Callable[[], Any]] | None:
    """Return (name, () -> decompressor) of a file that starts with these bytes, or None."""
    return next((packing for magic, packing in PACKED.items() if raw.startswith(magic)), None)


def peek(path: Path, n_bytes: int = 4096) -> bytes:
    """Return the first bytes of a file, unpacked; b"" if it cannot be read."""
    try:
        with open_regular(path) as file:
            raw = file.read(n_bytes)
            if packing := packing_of(raw):  # bzip2 unpacks whole blocks of 900 kB
                return packing[1]().decompress(raw + file.read(1 << 20), n_bytes)
    except DAMAGED:
        return b""
    return raw


def text_bytes_bound(path: Path) -> int:
    """Return how many bytes of text the file can hold at most: its size, or the most that `line_blocks` unpacks."""
    size = path.stat().st_size
    with open_regular(path) as file:
        return max(size * 1032, FREE_BYTES) if packing_of(file.read(8)) else size


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """Open for reading bytes; InputError if that fails, FormatError if the file is empty."""
    try:
        file = open_regular(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    with file:
        if os.fstat(file.fileno()).st_size == 0:
            raise FormatError(f"{path}: the file is empty")
        yield file


def line_blocks(
    path: Path, progress: Progress = None, block_bytes: int = BLOCK_BYTES, *, has_long_lines: bool = False
) -> Iterator[tuple[bytes, int]]:
    """Yield (block, number of its first line, from 1): whole lines, about block_bytes at a time.

    Args:   has_long_lines  a line may be as long as the file: a node with all its neighbours.
    Raises: FormatError for an empty file, damaged gzip, a line over 1 MiB that does not end in its block, or a gzip file
            that unpacks to more than 32 MiB and 200 times what was read of it.
    """
    line, rest, longest = 1, [], MAX_LINE_BYTES  # the pieces of a line that has not ended
    for piece in _unpacked(path, progress, block_bytes):
        if line == 1 and not rest:
            _check_is_text(path, piece)
            longest = max(MAX_LINE_BYTES, has_long_lines * path.stat().st_size)
        cut = piece.rfind(b"\n") + 1
        if cut:
            block = b"".join([*rest, piece[:cut]])
            yield block, line
            line += block.count(b"\n")
            rest = []
        rest.append(piece[cut:])
        if sum(map(len, rest)) > longest:
            raise FormatError(f"{path}:{line}: a line of over {longest >> 20} MiB; is this a text file?")
    if any(rest):
        yield b"".join(rest), line


def _check_is_text(path: Path, first: bytes) -> None:
    """Raise FormatError for a first block of bytes that are no lines of UTF-8."""
    start = first[:64].lstrip().lower()
    for mark, what in STARTS.items():
        if start.startswith(mark):
            raise FormatError(f"{path}: {what.format(path)}")
    if b"\r" in first and b"\n" not in first:
        raise FormatError(f"{path}: its lines end in carriage returns; write newlines: tr '\\r' '\\n' < {path} > FILE")


def comments_end(marks: str) -> Callable[..., int]:
    """Return (whole lines, at=0) -> where the comment and blank lines that begin at a byte end."""
    line = rf"[ \t,\r\v\f]*+(?:[{marks}][^\n]*+)?"
    pattern = re.compile(rf"(?:{line}\n)*+(?:{line}\Z)?".encode())
    return lambda block, at=0: found.end() if (found := pattern.match(block, at)) else at


def read_json(path: Path) -> Any:
    """Return the value of a JSON file; FormatError with its line where it is none."""
    try:
        with opened(path) as file:
            return json.loads(file.read())
    except (ValueError, RecursionError) as error:
        where = f"{path}:{error.lineno}" if isinstance(error, json.JSONDecodeError) else str(path)
        raise FormatError(f"{where}: not JSON: {error}; was the file cut off?") from None


def _unpacked(path: Path, progress: Progress, block_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of a plain or packed file, block_bytes at a time, packed members one after another."""
    with opened(path) as file:
        total = path.stat().st_size
        packing = packing_of(file.read(8))
        file.seek(0)
        if packing is not None:
            yield from _members(path, file, total, progress, block_bytes, *packing)
            return
        while block := file.read(block_bytes):
            if progress:
                progress(file.tell(), total)
            yield block


def _members(
    path: Path, file: BinaryIO, total: int, progress: Progress, block_bytes: int, name: str, start: Callable[[], Any]
) -> Iterator[bytes]:
    """Yield the bytes of the packed members of a file, block_bytes at a time; start: see packing_of."""
    stream, out_bytes, pending = start(), 0, b""
    while True:
        if stream.eof or getattr(stream, "needs_input", True):
            pending = pending or file.read(1 << 16)
            if not pending:
                break
        if stream.eof:
            if not pending.strip(b"\0"):  # padding after the last member
                pending = b""
                continue
            stream = start()
        try:
            block = stream.decompress(pending, block_bytes)
        except DAMAGED as error:
            raise FormatError(f"{path}: damaged {name} after {out_bytes} bytes: {error}; get the file again") from None
        pending = stream.unused_data if stream.eof else getattr(stream, "unconsumed_tail", b"")
        out_bytes += len(block)
        read = file.tell() - len(pending)
        if out_bytes > max(FREE_BYTES, MAX_RATIO * read):  # not only at the end of it all
            raise FormatError(
                f"{path}: the first {read} of {total} bytes unpack to more than {out_bytes}, over {MAX_RATIO} times as "
                f"many; if that is right, unpack it first"
            )
        if progress:
            progress(file.tell(), total)
        if block:
            yield block
    if not stream.eof:
        raise FormatError(f"{path}: {name} data is cut off after {out_bytes} bytes of text; get the file again")
