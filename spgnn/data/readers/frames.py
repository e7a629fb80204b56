"""Tables in files, by pyarrow: CSV of any separator, packed or not, and Parquet, a file or a folder of parts."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ...atomic import open_regular
from ...errors import FormatError, InputError
from .heads import ENDINGS, Head, edge_blocks, read_title
from .lines import number_wanted
from .text import Progress, without_packing

if TYPE_CHECKING:
    from pyarrow import ChunkedArray, Table
    from pyarrow.dataset import Dataset

PARQUET = (".parquet", ".pq")
BLANKS, COMMENTS = re.compile(rb"[ \t\v\f]+"), re.compile(rb"^[ ]?[#%][^\n]*|^ +| +(?=\r?$)", re.MULTILINE)
VALUE = re.compile(r"conversion error to double: invalid value '(.*)'")
ROW = re.compile(r"[Rr]ow #(\d+)")


def is_table(path: Path) -> bool:
    """Whether a path names a table: text, or Parquet, a file or a folder of parts."""
    return is_parquet(path) or (path.is_file() and without_packing(path.name.lower()).endswith(ENDINGS))


def is_parquet(path: Path) -> bool:
    """a file .parquet, or a folder of parts, as Spark writes it."""
    if path.is_dir():
        return not (path / "manifest.json").exists() and any(_parts(path))
    return path.is_file() and path.suffix.lower() in PARQUET


def read_frame(
    path: Path, known: tuple[str, ...], id_of: Callable[[list[str]], str], labels_of: Callable[[list[str]], list[str]]
) -> Table:
    """Return the columns of a table of nodes, a pyarrow Table; types are those of its values, ids of text are text.

    Args: known  names of columns, which make a first line of text a line of names, see `read_title`.
          id_of  (names of columns) -> the column of ids; labels_of: those of labels, of which 007 is text.
    """
    if is_parquet(path):
        with open_parquet(path) as parts:
            return parts.to_table()
    names, separator, skip, line = read_title(path, known)
    check_names(path, names)
    head = Head(skip, False, (), 0, 0, None, separator, False, line)
    with _naming(path, line):
        texts = dict.fromkeys([*labels_of(names), *([id_of(names)] if len(names) > 1 else [])], "string")
        convert = {"strings_can_be_null": True, "column_types": texts}
        frame = _read_csv((block for block, _ in edge_blocks(path, head)), names, separator, convert)
        for place, name in enumerate(names):
            if len(names) == 1 or name != id_of(names):
                as_numbers = _labels_as_numbers if name in texts else _without_commas if separator != "," else None
                frame = frame.set_column(place, name, as_numbers(frame.column(name))) if as_numbers else frame
        return frame


def _labels_as_numbers(column: ChunkedArray) -> ChunkedArray:
    """Return a column of text as numbers, where all of it is; 007 is none."""
    from pyarrow import ArrowInvalid, compute

    texts = compute.utf8_trim_whitespace(column)
    if not compute.any(compute.match_substring_regex(texts, "^[-+]?0[0-9]")).as_py():
        for kind in ("int64", "double"):
            with suppress(ArrowInvalid):
                return texts.cast(kind)
    return texts


def _without_commas(column: ChunkedArray) -> ChunkedArray:
    """Return a column of text that is all numbers with a decimal comma as numbers."""
    from pyarrow import compute, types

    if not types.is_string(column.type):
        return column
    is_number = compute.match_substring_regex(column, r"^ *[-+]?[0-9]+(,[0-9]+)?([eE][-+]?[0-9]+)? *$")
    if not compute.all(is_number).as_py():
        return column
    return compute.utf8_trim_whitespace(compute.replace_substring(column, ",", ".")).cast("double")


def read_edge_columns(path: Path, head: Head, extra: dict[int, bool], progress: Progress = None) -> Table:
    """Return the columns of a text file whose cells are names or quoted, a pyarrow Table with their places as names.

    Args: extra  columns beside source, target and perhaps weight: place -> whether it has numbers, or what its cells are.
    """
    names = [str(column) for column in range(head.lines.count if head.lines else 0)]
    used = [names[column] for column in head.used]
    with _naming(path, head.first_line):
        import pyarrow

        word = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
        types = {names[c]: pyarrow.float64() if is_number else pyarrow.string() for c, is_number in extra.items()}
        types |= dict(zip(used, (word, word, pyarrow.float64())))
        convert = {
            "include_columns": list(types), "column_types": types, "strings_can_be_null": True, "null_values": [""],
            "decimal_point": head.point,
        }  # fmt: skip
        frame = _read_csv((block for block, _ in edge_blocks(path, head, progress)), names, head.separator, convert)
    for name in (names[column] for column, is_number in extra.items() if not is_number):
        frame = frame.set_column(frame.column_names.index(name), name, _labels_as_numbers(frame.column(name)))
    return frame


def check_names(where: Path | str, names: list[str]) -> None:
    """Raise FormatError where two columns have one name."""
    if twice := {name for name in names if names.count(name) > 1}:
        raise FormatError(f"{where}: two columns are named {min(twice)!r}; rename one")


@contextmanager
def open_parquet(path: Path, words: bool = False) -> Iterator[Dataset]:
    """Open a Parquet file or folder as a pyarrow Dataset; words: text as dictionaries.

    Raises: FormatError for what pyarrow raises inside.
    """
    with _naming(path, 0):
        from pyarrow import dataset, types

        for part in _parts(path):
            open_regular(part).close()
        parts = dataset.dataset(_parts(path), format="parquet")
        if words:
            is_text = lambda kind: types.is_string(kind) or types.is_large_string(kind)
            options = dataset.ParquetReadOptions(dictionary_columns=[f.name for f in parts.schema if is_text(f.type)])
            parts = dataset.dataset(_parts(path), format=dataset.ParquetFileFormat(read_options=options))
        yield parts


def _read_csv(blocks: Iterator[bytes], names: list[str], separator: str, convert: dict) -> Table:
    from pyarrow import csv

    if not separator:
        blocks = map(one_blank, blocks)
    return csv.read_csv(
        io.BufferedReader(_Stream(blocks), 1 << 20),
        csv.ReadOptions(use_threads=False, column_names=names),
        csv.ParseOptions(delimiter=separator or " ", newlines_in_values=bool(separator)),
        csv.ConvertOptions(**convert),
    )


def one_blank(block: bytes) -> bytes:
    """Return whole lines with one blank between their cells, without comments; lines that are so already cost little."""
    if any(mark in block for mark in (b"  ", b"\t", b"\v", b"\f")):
        block = BLANKS.sub(b" ", block)
    framed = b"\n%b\n" % block
    return COMMENTS.sub(b"", block) if any(mark in framed for mark in (b"#", b"%", b"\n ", b" \n", b" \r")) else block


def _parts(path: Path) -> list[str]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    hidden = lambda file: any(part[:1] in "._" for part in file.relative_to(path).parts)
    return [str(file) for file in files if file == path or (file.suffix.lower() in PARQUET and not hidden(file))]


def arrow(where: Path | str) -> ModuleType:
    """Return pyarrow; InputError that says how it is installed."""
    try:
        import pyarrow
    except ImportError:
        raise InputError(f"{where}: names, quotes and Parquet need pyarrow: pip install 'spgnn[tables]'") from None
    return pyarrow


@contextmanager
def _naming(path: Path, first_line: int) -> Iterator[None]:
    """Put the file and the line before what pyarrow reports."""
    pyarrow = arrow(path)
    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        row = ROW.search(text)
        where = f"{path}:{first_line + int(row[1]) - 1}" if row and first_line else str(path)
        if "invalid UTF8" in text:
            raise FormatError(
                f"{where}: is not UTF-8; if it is Latin-1: iconv -f LATIN1 -t UTF-8 {path} > FILE"
            ) from None
        value = VALUE.search(text)
        if value:
            raise FormatError(f"{where}: weight is {value[1]!r}; {number_wanted(value[1])}") from None
        raise FormatError(f"{where}: cannot be read as a table: {text[:200]}") from None


class _Stream(io.RawIOBase):
    """Blocks of bytes as a file."""

    def __init__(self, blocks: Iterator[bytes]):
        self.blocks, self.rest = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self.rest:
            block = next(self.blocks, None)
            if block is None:
                return 0
            self.rest = memoryview(block)
        n = min(len(buffer), len(self.rest))
        buffer[:n], self.rest = self.rest[:n], self.rest[n:]
        return n
