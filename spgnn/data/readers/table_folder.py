"""A folder of tables: rows are nodes, typed by their table, and each foreign key is a relation; tables.toml says which.

Shapes: n rows of a table, N of all, L edges, k cells that are not empty.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ...config import TableConfig, build, toml_values
from ...errors import FormatError, InputError, nearest
from ...graph import TEST, UNLABELLED, Graph, labelled, random_split
from ..bipartite import alike
from ..by_type import typed_graph
from ..formats import OF_TABLES, Progress, reader
from ..table_columns import APART, coded, has_numbers, odd_value, places_of
from ..tables import NodeTable
from .frames import arrow, is_parquet, is_table, read_frame
from .heads import read_title
from .make_graph import NO_VALUE, naming

if TYPE_CHECKING:
    from pyarrow import ChunkedArray, Table

TOML = "tables.toml"
OF_FOLDER = {"table": dict, "target": str, "split": str, "missing": str, "cutoff": str, "unknown": str}
OF_TABLE = {"file": str, "key": str, "foreign": dict, "time": str, "features": list, "one_hot": list, "scale": dict}
KNOWN_AS = {"target": "labels"}  # of a NodeTable
TYPES = {dict: "a table", str: "text", list: "a list of columns"}
MOST_CATEGORIES = 50  # of a text column that is a feature without being named


@dataclass(frozen=True)
class KeyedTable:
    """A table: its file, its rows, and what tables.toml says of it.

    Args: first_line  of its rows; 0: the file has no lines. of: its part of tables.toml.
          apart       {"target": column, "split": column}, where they are of this table.
    """

    name: str
    path: Path
    frame: Table
    first_line: int
    of: Mapping[str, Any]
    apart: Mapping[str, str]
    notes: list[str]

    @property
    def where(self) -> str:
        return f"{self.path}: table {self.name!r}"

    def cell(self, column: str, row: int) -> str:
        """Return what messages call a cell."""
        line = f" (line {self.first_line + row})" if self.first_line else ""
        return f"{self.where}, column {column!r}, row {row + 1}{line}"

    def words(self, column: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows whose cell is not empty, (k,), and their (codes, values), see `coded`."""
        rows = np.flatnonzero(filled(self.frame.column(column)))
        return rows, *coded(self.frame.column(column).take(rows), f"{self.where}, column {column!r}")

    @cached_property
    def ids(self) -> np.ndarray:
        """The keys of its rows, (n,), without `key` their numbers from 0; FormatError for one that is empty or twice there."""
        n, key = self.frame.num_rows, self.of.get("key", "")
        if not key:
            return np.arange(n)
        rows, codes, values = self.words(key)
        if len(rows) < n:
            first = self.cell(key, np.setdiff1d(np.arange(n), rows)[0])
            raise FormatError(f"{first}: no key; expected one in each row, {n - len(rows):,} of {n:,} have none")
        first_of = np.unique(codes, return_index=True)[1]
        if len(first_of) < n:
            row = int(np.setdiff1d(rows, first_of)[0])
            twice = f"the key {values.item(codes[row])!r} of row {first_of[codes[row]] + 1} again"
            more = f"{n - len(first_of):,} of {n:,} rows repeat one"
            raise FormatError(f"{self.cell(key, row)}: {twice}; expected each key once, {more}")
        return values[codes]

    @cached_property
    def features(self) -> list[str]:
        """Those of tables.toml; else all other columns that are numbers or have few values."""
        one_hot = self.of.get("one_hot", [])
        if "features" in self.of:
            given = {*self.of["features"], *one_hot} - {*self.apart.values()}
            return [name for name in self.frame.column_names if name in given]
        others = [name for name in self.frame.column_names if name not in self.used and name.lower() not in APART]
        of = {name: self.frame.column(name) for name in others}
        return [name for name in of if name in one_hot or has_numbers(of[name]) or has_few(of[name])]

    @property
    def categories(self) -> list[str]:
        """Features that have a column of X for each value: text, and one_hot."""
        one_hot, column = self.of.get("one_hot", []), self.frame.column
        is_text = lambda name: (
            not has_numbers(column(name)) and not odd_value(column(name)).is_alone
        )  # or a number is odd
        return [name for name in self.features if name in one_hot or is_text(name)]

    @property
    def used(self) -> list[str]:
        """Columns that are no features: key, time, foreign keys, target, split."""
        keys = [self.of[what] for what in ("key", "time") if what in self.of]
        return [*keys, *self.of.get("foreign", ()), *self.apart.values()]


@dataclass(frozen=True, slots=True)
class Relation:
    """A foreign key: rows (L,) of the source, and the rows (L,) of the target that they name.

    Args: empty, unknown  cells without a value, and those that are no key; fault: the first of these, for a message.
    """

    source: str
    column: str
    target: str
    rows: np.ndarray
    to: np.ndarray
    empty: int
    unknown: int
    fault: str


@dataclass(frozen=True, slots=True)
class TableFolder:
    """The tables of a folder, and their foreign keys."""

    path: Path
    spec: Mapping[str, Any]
    tables: Mapping[str, KeyedTable]
    relations: list[Relation]

    @property
    def faults(self) -> list[str]:
        """What of the foreign keys is refused."""
        return [r.fault for r in self.relations if r.fault and self.spec.get("unknown") != "empty"]


def is_text(column: ChunkedArray) -> bool:
    return str(column.type).removeprefix("dictionary<values=").removeprefix("large_").startswith("string")


def filled(column: ChunkedArray) -> np.ndarray:
    """Return which cells are not empty, (n,) bool: no null, NaN or blank text."""
    from pyarrow import compute

    is_empty = compute.is_null(column, nan_is_null=True)
    if is_text(column):
        is_empty = compute.equal(compute.utf8_trim_whitespace(column.cast("string")), "").fill_null(True)
    return ~is_empty.to_numpy()


def has_few(column: ChunkedArray) -> bool:
    """Whether a column of text has at most MOST_CATEGORIES values, each twice on average."""
    from pyarrow import compute

    count = compute.count_distinct(column.cast("string")).as_py() if is_text(column) else 0
    return 0 < count <= MOST_CATEGORIES and 2 * count <= len(column) - column.null_count


def is_table_folder(path: Path) -> bool:
    """a folder with tables.toml, which `spgnn info FOLDER --write` guesses of tables with keys."""
    return (path / TOML).is_file()


@reader("tables", detect=is_table_folder, takes=OF_TABLES)
def read_table_folder(path: Path, progress: Progress = None, **options) -> Graph:
    """Read tables with keys: a row is a node, and its foreign key c an edge of the relation "TABLE c OTHER".

    Returns: typed Graph, meta["node_types"]; X is sparse, with columns of each table; y is of the rows of the target.
    Raises:  FormatError naming table, column and row of what does not fit.
    """
    folder = open_tables(path, spec_of(path))
    if folder.faults:
        raise FormatError(f'{folder.faults[0]}, or unknown = "empty" in {TOML}')
    given = {name: folder.spec[name] for name in OF_TABLES if name in folder.spec}
    return _graph(folder, build(TableConfig, given | options, str(path / TOML)))


def spec_of(path: Path) -> dict[str, Any]:
    """Return what tables.toml has. Raises: FormatError with the nearest key or table."""
    where, values = f"{path / TOML}", toml_values(path / TOML)
    _check_keys(where, values, OF_FOLDER)
    if (unknown := values.get("unknown", "refuse")) not in ("refuse", "empty"):
        raise FormatError(
            f'{where}: unknown = {unknown!r}; expected "refuse", or "empty": keys that no row has are no edge'
        )
    tables = values.get("table", {})
    for name, of in tables.items():
        _check_keys(f"{where}: table {name!r}", of if isinstance(of, dict) else {name: of}, OF_TABLE)
        if any(mark in name for mark in " \t\n."):
            raise FormatError(f"{where}: table {name!r}: names of tables have no blanks and dots; rename it")
        for other in of.get("foreign", {}).values():
            if not isinstance(other, str) or other not in tables:
                raise FormatError(
                    f"{where}: table {name!r}: foreign names no table {other!r}{nearest(str(other), tables)}"
                )
    ends = {what: values[what].partition(".") for what in ("target", "split") if what in values}
    for what, (table, _, column) in ends.items():
        if table not in tables or not column:
            raise FormatError(f"{where}: {what} = {values[what]!r}; expected TABLE.COLUMN{nearest(table, tables)}")
    if not tables or ("split" in ends and ends["split"][0] != ends.get("target", [""])[0]):
        raise FormatError(f"{where}: expected [table.NAME] with file = ..., and a split of the table of the target")
    return values


def _check_keys(where: str, values: Mapping[str, Any], known: Mapping[str, type]) -> None:
    for key, value in values.items():
        if key not in known:
            raise FormatError(f"{where}: unknown key {key!r}{nearest(key, known)}")
        if not isinstance(value, known[key]) or not all(isinstance(name, str) for name in value):
            raise FormatError(f"{where}: {key} = {value!r}; expected {TYPES[known[key]]}")


def open_tables(path: Path, spec: Mapping[str, Any]) -> TableFolder:
    """Return the tables that a spec names, read, and the rows that each foreign key joins.

    Raises: InputError for a file that is not there, FormatError for a column that is not, and for keys.
    """
    tables = {name: _read(path, name, of, spec) for name, of in spec["table"].items()}
    foreign = [(table, *of) for table in tables.values() for of in table.of.get("foreign", {}).items()]
    return TableFolder(
        path, spec, tables, [_relation(table, column, tables[other]) for table, column, other in foreign]
    )


def _read(folder: Path, name: str, of: Mapping[str, Any], spec: Mapping[str, Any]) -> KeyedTable:
    path, where = folder / of.get("file", ""), f"{folder / TOML}: table {name!r}"
    if "file" not in of or not is_table(path):
        raise InputError(f'{where}: no table {path}; expected file = "NAME.csv", .tsv or .parquet, of the folder')
    apart = {what: spec.get(what, "").removeprefix(f"{name}.") for what in ("target", "split")}
    apart = {what: column for what, column in apart.items() if column != spec.get(what, "")}
    columns_of = [what for what in OF_TABLE if what in of and what != "scale"]
    named = {what: [of[what]] if isinstance(of[what], str) else [*of[what]] for what in columns_of}
    listed = {*named.get("features", ()), *named.get("one_hot", ())}
    named = {what: [column for column in columns if column not in apart.values()] for what, columns in named.items()}
    named |= {what: [column] for what, column in apart.items()} | {"file": []}
    ids = [*named.get("key", []), *named.get("foreign", [])]
    known = tuple(part for columns in [*named.values(), *(name.split("+") for name in ids)] for part in columns)
    frame, notes = read_frame(path, (*APART, *known), lambda _: ids, lambda _: [*apart.values()])
    for column in ids:
        frame = _with_joined(frame, column)
    for what, column in apart.items():
        notes += [f"{where}: {column!r} is the {what}, and left out of its features"] * (column in listed)
    has_target = apart.get("target", "") in ("", *frame.column_names)
    for what, columns in named.items():
        for column in columns:
            if column not in frame.column_names:
                lacks = f"{where}: no column {column!r} in {path.name} ({what}){nearest(column, frame.column_names)}"
                if has_target or what not in apart:
                    raise FormatError(lacks)
                notes.append(lacks)  # as where it is to be predicted
    for column in listed.intersection(frame.column_names).difference(named.get("one_hot", ())):
        if str(frame.column(column).type) == "null":
            frame = frame.set_column(frame.column_names.index(column), column, frame.column(column).cast("double"))
    first_line = 0 if is_parquet(path) else read_title(path, (*APART, *known))[3]
    table = KeyedTable(name, path, frame, first_line, of, apart, notes)
    for time in named.get("time", []):
        table = _with_times(table, time)
    assert len(table.ids) == frame.num_rows  # or a fault of its keys is raised
    return table


def _with_joined(frame: Table, name: str) -> Table:
    """Return a table with the column of a key a+b, the texts of a and b, empty where one is."""
    from pyarrow import compute

    parts, columns = name.split("+"), frame.column_names
    if name in columns or len(parts) == 1 or not {*parts} <= {*columns}:
        return frame
    texts = [compute.if_else(filled(cells), cells.cast("string"), None) for cells in map(frame.column, parts)]
    return frame.append_column(name, compute.binary_join_element_wise(*texts, "+"))


def _with_times(table: KeyedTable, column: str) -> KeyedTable:
    """Return a table whose column has times where it has text; FormatError naming the first that is none."""
    from pyarrow import ArrowInvalid, compute

    frame, cells = table.frame, table.frame.column(column)
    if not is_text(cells):
        return table
    texts = compute.if_else(filled(cells), compute.utf8_trim_whitespace(cells), None)

    def times_before(end: int) -> ChunkedArray | None:
        with suppress(ArrowInvalid):
            return texts[:end].cast("timestamp[us]")

    if (times := times_before(len(cells))) is None:
        row = bisect_left(range(len(cells)), True, key=lambda row: times_before(row + 1) is None)
        first = f"{table.cell(column, row)}: {cells[row].as_py()!r}"
        raise FormatError(f"{first}; expected dates, such as 2024-01-31 or 2024-01-31 12:00:00, or numbers")
    return replace(table, frame=frame.set_column(frame.column_names.index(column), column, times))


def _scaled(table: KeyedTable) -> Table:
    """Return the rows of a table, features as (x - mean) / deviation, where scale has both; FormatError for other values."""
    from pyarrow import compute

    frame, texts = table.frame, table.categories
    for name, pair in table.of.get("scale", {}).items():
        is_pair = isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, (int, float)) for x in pair)
        if not is_pair or not pair[1] > 0:
            where = f"{table.path.parent / TOML}: table {table.name!r}: scale of {name!r} is {pair!r}"
            raise FormatError(f"{where}; expected [mean, deviation], numbers, the second above 0")
        if name in table.features and name not in texts and has_numbers(frame.column(name)):
            apart = compute.subtract(frame.column(name).cast("double"), float(pair[0]))
            scaled = compute.divide(apart, float(pair[1])).cast("float")
            frame = frame.set_column(frame.column_names.index(name), name, scaled)
    return frame


def _relation(table: KeyedTable, column: str, other: KeyedTable) -> Relation:
    """Return the edges of a foreign key; an empty cell, or a word such as NULL that is no key, is none."""
    rows, codes, values = table.words(column)
    ids, words = alike(other.ids, values)
    to = places_of(ids, words)
    is_word = ((to >= 0) | ~np.isin(words.astype(str), NO_VALUE))[codes]
    rows, codes = rows[is_word], codes[is_word]
    is_known, fault = to[codes] >= 0, ""
    if unknown := int(np.count_nonzero(~is_known)):
        first = int(np.argmin(is_known))
        key = f"column {other.of['key']!r}" if "key" in other.of else "rows from 0"
        such = f"one of its {len(ids):,}, such as {ids.item(0)!r}, or" if len(ids) else ""
        fault = f"{words.item(codes[first])!r} is no key of {other.name} ({key}), as {unknown:,} of {len(rows):,} cells"
        fault = f"{table.cell(column, rows[first])}: {fault}; expected {such} an empty cell"
    empty = table.frame.num_rows - len(rows)
    return Relation(table.name, column, other.name, rows[is_known], to[codes[is_known]], empty, unknown, fault)


def _graph(folder: TableFolder, wanted: TableConfig) -> Graph:
    """Return the Graph of tables without faults."""
    tables, relations, target = folder.tables, folder.relations, folder.spec.get("target", "").partition(".")
    of_types, names, notes, unread = {}, [], [], []
    for name, table in tables.items():
        nodes = NodeTable(_scaled(table), table.where, replace(wanted, id=table.of.get("key", "")), table.ids)
        nodes.one_hot = table.categories
        of_types[name], columns = _of_type(table, nodes)
        names += [f"{name}.{column}" for column in columns] or [name]
        notes += [*table.notes, *nodes.notes]
        unread += [f"{name}.{column}" for column in nodes.unread(*table.used, *table.features)]
    ends = {(r.source, r.column, r.target): np.stack([r.rows, r.to]) for r in relations}
    for r in relations:
        if r.empty:
            empty = f"empty in {r.empty:,} of {tables[r.source].frame.num_rows:,} rows"
            notes.append(f"{r.source}.{r.column}: {empty}, which have no such edge")
        notes += [f"{r.fault.partition('; expected')[0]}, which have no such edge"] if r.fault else []
    late = _late(folder, wanted.cutoff) if wanted.cutoff else {}
    has_target = "y" in of_types.get(target[0], {})
    tested = _test_late(of_types[target[0]], late[target[0]]) if late and has_target else 0
    sizes = {name: table.frame.num_rows for name, table in tables.items()}
    for name, n in sizes.items():
        is_used = np.zeros(n, bool)
        for of, pair in ends.items():
            for rows in (pair[at] for at in (0, 1) if of[2 * at] == name):
                is_used[rows] = True
        if 0 < (lonely := n - np.count_nonzero(is_used)) < n:
            notes.append(f"table {name!r}: {lonely:,} of {n:,} rows have no edge")
    meta = {"notes": notes, "unread": unread} | ({"label": target[2]} if target[0] else {})
    fields = {"ids": _ids(tables), "feature_names": tuple(names), "name": folder.path.resolve().name, "meta": meta}
    with naming(folder.path):
        graph = typed_graph(sizes, of_types, ends, target[0] if has_target else None, **fields)
    if not late:
        return graph
    guarded, rows = _guarded(graph, np.concatenate([*late.values()])), sum(map(np.count_nonzero, late.values()))
    lost = f"{2 * graph.nnz - guarded.nnz:,} of {2 * graph.nnz:,} messages are dropped"
    notes = [f"cutoff {wanted.cutoff}: {rows:,} rows are after it, {lost}, test targets: {tested:,}", *notes]
    return replace(guarded, meta=guarded.meta | {"notes": notes, "cutoff": wanted.cutoff})


def _guarded(graph: Graph, is_late_N: np.ndarray) -> Graph:
    """Return the graph used both ways, in which late rows read what they name, and no row reads a late one but those that do."""
    graph = graph.with_edges("both")
    assert graph.edge_attr is not None and graph.edge_ids is not None
    A, ids_E, row_E = graph.A, graph.edge_ids, np.repeat(np.arange(graph.n_nodes), np.diff(graph.A.indptr))
    keep = ~is_late_N[A.indices] | (is_late_N[row_E] & (ids_E >= 0))
    indptr = np.concatenate([[0], np.cumsum(keep)])[A.indptr]
    A = sp.csr_array((A.data[keep], A.indices[keep], indptr), shape=A.shape)
    return replace(graph, A=A, edge_attr=graph.edge_attr[keep], edge_ids=ids_E[keep])


def _ids(tables: Mapping[str, KeyedTable]) -> np.ndarray:
    """Return the keys of all rows, as customers:7 where two tables share one."""
    ids = alike(*(table.ids for table in tables.values()))
    if len(set().union(*(of.tolist() for of in ids))) < sum(map(len, ids)):
        ids = [f"{name}:" + of.astype(str).astype(object) for name, of in zip(tables, ids)]
    return np.concatenate(ids)


def _of_type(table: KeyedTable, nodes: NodeTable) -> tuple[dict[str, Any], Iterable[str]]:
    """Return X, y, classes and split of the rows of a table, what it has of them, and the names of columns of X."""
    n, frame = table.frame.num_rows, table.frame.column_names
    columns = {"features": table.features} | {what: [name] for what, name in table.apart.items() if name in frame}
    rows, of = Graph(sp.csr_array((n, n), dtype=np.float32), ids=table.ids), {"X": np.ones((n, 1), np.float32)}
    for what, names in columns.items():
        of |= nodes.fields(rows, KNOWN_AS.get(what, what), names, np.arange(n)) if names else {}
        if what == "target" and not labelled(of["y"]).any():
            nodes.notes.append(f"{table.where}, column {names[0]!r}: no row has a target")
            del of["y"], of["classes"]
    of.pop("meta", None)
    of["X"] = sp.csr_array(
        of["X"] if of["X"].shape[1] else np.ones((n, 1), np.float32)
    )  # no column: text without a value
    return of, of.pop("feature_names", ())


def _test_late(of: dict[str, Any], is_late_n: np.ndarray) -> int:
    """Put late targets into test, others as they are given, or 80 % into train and 20 % into val; return how many are late."""
    has_y_n = labelled(of["y"])
    is_test_n = is_late_n & has_y_n
    if is_test_n.any():
        drawn = random_split(np.where(has_y_n & ~is_late_n, 0, UNLABELLED), fractions=(0.8, 0.2, 0.0))
        of["split"] = np.where(is_test_n, np.int8(TEST), of.get("split", drawn))
    return int(np.count_nonzero(is_test_n))


def _late(folder: TableFolder, cutoff: str) -> dict[str, np.ndarray]:
    """Return which rows of each table are after the cutoff; those without its column are where a row that they name is."""
    from pyarrow import ArrowException, compute

    is_late = {name: np.zeros(table.frame.num_rows, bool) for name, table in folder.tables.items()}
    times = {f"{name}.{table.of['time']}": table for name, table in folder.tables.items() if "time" in table.of}
    column, _, value = cutoff.partition("=")
    found = {table.name: table for full, table in times.items() if column in (full, table.of["time"])}
    if not found:
        raise FormatError(f"{folder.path}: --cutoff {cutoff}: {column!r} is no time of a table{nearest(column, times)}")
    for name, table in found.items():
        cells = table.frame.column(table.of["time"])
        try:
            limit = arrow(table.where).scalar(value).cast(cells.type)
        except ArrowException:
            wanted = f"{value!r} is no {cells.type}; expected such as {column}={cells[0]}"
            raise FormatError(f"{folder.path}: --cutoff {cutoff}: {wanted}") from None
        is_late[name] = compute.greater(cells, limit).fill_null(False).to_numpy()
    for _ in folder.tables:  # a line of an order is as late as the order, a parcel of it too
        for r in folder.relations:
            if r.source not in found:
                is_late[r.source][r.rows] |= is_late[r.target][r.to]
    return is_late
