"""Tables in files, by pyarrow: CSV of any separator, packed or not, and Parquet, a file or a folder of parts."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...atomic import open_regular
from ...errors import FormatError, InputError
from .anndata_file import is_h5ad_file, obs_columns
from .heads import ENDINGS, Head, edge_blocks, read_title
from .lines import number_wanted
from .make_graph import NO_VALUE
from .mesh_file import is_mesh_file, mesh_columns
from .text import Progress, without_packing

if TYPE_CHECKING:
    from pyarrow import ChunkedArray, Table
    from pyarrow.dataset import Dataset

PARQUET = (".parquet", ".pq")
BLANKS, COMMENTS = re.compile(rb"[ \t\v\f]+"), re.compile(rb"^[ ]?[#%][^\n]*|^ +| +(?=\r?$)", re.MULTILINE)
VALUE = re.compile(r"CSV column #(\d+): .*conversion error to double: invalid value '(.*)'")
ROW = re.compile(r"[Rr]ow #(\d+)")


def is_table(path: Path) -> bool:
    """Whether a path names a table: text, AnnData's cells, points of a mesh, or Parquet, a file or a folder of parts."""
    is_text = path.is_file() and without_packing(path.name.lower()).endswith(ENDINGS)
    return is_text or is_h5ad_file(path) or is_mesh_file(path) or is_parquet(path)


def is_parquet(path: Path) -> bool:
    """a file .parquet, or a folder of parts, as Spark writes it."""
    if path.is_dir():
        return not any((path / name).exists() for name in ("manifest.json", "tables.toml")) and any(_parts(path))
    return path.is_file() and path.suffix.lower() in PARQUET


def read_frame(
    path: Path,
    known: tuple[str, ...],
    ids_of: Callable[[list[str]], list[str]],
    labels_of: Callable[[list[str]], list[str]],
) -> tuple[Table, list[str]]:
    """Return the columns of a table of nodes, a pyarrow Table, and notes; types are those of its values, ids of text are text.

    Args: known  names of columns, which make a first line of text a line of names, see `read_title`.
          ids_of  (names of columns) -> those of ids; labels_of: those of labels, of which 007 is text.
    """
    if is_parquet(path):
        with open_parquet(path) as parts:
            return parts.to_table(), []
    if is_h5ad_file(path) or is_mesh_file(path):
        pyarrow, (columns, notes) = arrow(path), obs_columns(path) if is_h5ad_file(path) else (mesh_columns(path), [])
        with _naming(path, 0):
            columns = {name: pyarrow.array(column, from_pandas=True) for name, column in columns.items()}
            return pyarrow.table(columns), notes
    names, separator, skip, line, taken = read_title(path, known)
    check_names(path, names)
    head, notes = Head(skip, False, (), 0, 0, None, separator, False, line), [f"{path}: {taken}"] * bool(taken)
    ids = [name for name in names if name in ids_of(names) and len(names) > 1]
    labels = [name for name in names if name in labels_of(names)]
    with _naming(path, line):
        convert = {"strings_can_be_null": True, "column_types": dict.fromkeys([*labels, *ids], "string")}
        read = lambda **how: _read_csv((b for b, _ in edge_blocks(path, head)), names, separator, convert | how)
        frame = read(null_values=["", *NO_VALUE])
        with_words = [name for name in convert["column_types"] if frame.column(name).null_count]
        words = read(null_values=[""], include_columns=with_words) if with_words else None
        for place, name in enumerate(names):
            column = frame.column(name)
            text = words.column(name) if words is not None and name in with_words else column  # NA may be an id
            if name in ids:
                column = text
            elif name in labels:
                column = _labels_as_numbers(column, text)
                if (lost := column.null_count - text.null_count) > 0:
                    notes.append(f"{path}: {lost:,} labels of column {name!r} are NA, None or the like: no label")
            elif separator != ",":
                column = _without_commas(column)
            frame = frame.set_column(place, name, column)
        return frame, notes


def _labels_as_numbers(column: ChunkedArray, words: ChunkedArray) -> ChunkedArray:
    """Return a column of text as numbers, where all of it is; 007 is none. Else its words, which NA and the like are."""
    from pyarrow import ArrowInvalid, compute

    texts = compute.utf8_trim_whitespace(column)
    if not compute.any(compute.match_substring_regex(texts, "^[-+]?0[0-9]")).as_py():
        for kind in ("int64", "double"):
            with suppress(ArrowInvalid):
                return texts.cast(kind)
    return compute.utf8_trim_whitespace(words)


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
    others = {column: head.names[column] if head.names else str(column + 1) for column in extra}
    with _naming(path, head.first_line, others):
        import pyarrow
        import pyarrow.compute

        word = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
        types = {names[c]: pyarrow.float64() if is_number else pyarrow.string() for c, is_number in extra.items()}
        types |= dict(zip(used, (word, word, pyarrow.float64())))
        convert = {
            "include_columns": list(types), "column_types": types, "strings_can_be_null": True, "null_values": [""],
            "decimal_point": head.point,
        }  # fmt: skip
        frame = _read_csv((block for block, _ in edge_blocks(path, head, progress)), names, head.separator, convert)
        for name in (names[column] for column, is_number in extra.items() if not is_number):
            words = frame.column(name)
            is_lost = pyarrow.compute.is_in(words, value_set=pyarrow.array(NO_VALUE))
            known = pyarrow.compute.if_else(is_lost, None, words)
            frame = frame.set_column(frame.column_names.index(name), name, _labels_as_numbers(known, words))
    return frame


def read_words(path: Path, blocks: Iterator[bytes], separator: str, count: int) -> list[ChunkedArray]:
    """Return columns of text, as dictionaries, null where a cell is empty; cells between commas may have quotes."""
    with _naming(path, 0):
        import pyarrow

        names, word = [str(at) for at in range(count)], pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
        convert = {"column_types": dict.fromkeys(names, word), "strings_can_be_null": True, "null_values": ["", " "]}
        return _read_csv(blocks, names, separator, convert, '"' if separator == "," else False).columns


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


def _read_csv(blocks: Iterator[bytes], names: list[str], separator: str, convert: dict, quote: Any = '"') -> Table:
    from pyarrow import csv

    if not separator:
        blocks = map(one_blank, blocks)
    return csv.read_csv(
        io.BufferedReader(_Stream(blocks), 1 << 20),
        csv.ReadOptions(use_threads=False, column_names=names),
        csv.ParseOptions(delimiter=separator or " ", quote_char=quote, newlines_in_values=bool(quote and separator)),
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
def _naming(path: Path, first_line: int, named: dict[int, str] | None = None) -> Iterator[None]:
    """Put the file and the line before what pyarrow reports; named: columns of numbers that are no weight, by their place."""
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
        if value := VALUE.search(text):
            name = (named or {}).get(int(value[1]), "")
            what = f"column {name!r}" if name else "weight"
            raise FormatError(f"{where}: {what} is {value[2]!r}; {number_wanted(value[2], not name)}") from None
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
