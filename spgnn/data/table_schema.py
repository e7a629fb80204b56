"""The schema of a folder of tables: drawn as text; guessed from names and values, and written as tables.toml."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..atomic import write_text
from ..config import has_checkpoint
from ..errors import InputError, UsageError
from .formats import known_formats
from .readers.frames import PARQUET, open_parquet, read_frame
from .readers.table_folder import TOML, KeyedTable, TableFolder, filled, is_table_folder, is_text, open_tables, spec_of
from .readers.text import without_packing
from .table_columns import KNOWN, SAMPLED, coded, numbers_of

if TYPE_CHECKING:
    from pyarrow import ChunkedArray

WIDTH = 80
FOREIGN = ("source", "column", "target", "empty", "unknown", "fault")  # of a Relation, in JSON
ALIKE = 0.97  # of the values of a column that are keys of a table
ENDS = ("id", "key", "code", "no")  # of names of keys


def holds_tables(path: Path) -> bool:
    """Whether a path is a folder with tables.toml, or of tables that are no graph of another format."""
    if is_table_folder(path) or not path.is_dir() or has_checkpoint(path):
        return is_table_folder(path)
    files, found = _files(path), [name for name, of in known_formats().items() if of.detect(path)]
    return bool(files) and (not found or (found == ["parquet"] and len(set(map(_columns, files))) > 1))


def _files(path: Path) -> list[Path]:
    endings = (".csv", ".tsv", *PARQUET)
    return [file for file in sorted(path.glob("*.*")) if without_packing(file.name.lower()).endswith(endings)]


def _columns(file: Path) -> tuple[str, ...]:
    """Return the names of the columns of a Parquet file, which parts of one table share; else the name of the file."""
    if file.suffix.lower() not in PARQUET:
        return (file.name,)
    with open_parquet(file) as parts:
        return tuple(parts.schema.names)


def read_schema(path: Path, is_written: bool = False) -> TableFolder:
    """Return the tables of a folder by its tables.toml, or by a guess, which is_written writes there.

    Raises: UsageError where tables.toml is there already; InputError where the folder has no tables.
    """
    if is_table_folder(path):
        if is_written:
            raise UsageError(f"--write: {path / TOML} is there already; rename it, or omit --write")
        return open_tables(path, spec_of(path))
    if not path.is_dir() or not _files(path):
        raise InputError(f"{path}: no folder of tables; expected files .csv, .tsv or .parquet (--write)")
    folder = open_tables(path, _guessed(path))
    if is_written:
        write_text(path / TOML, _toml(folder))
    return folder


def drawn(folder: TableFolder) -> str:
    """Return the schema as lines of at most 80 columns: tables, rows, keys, times, features, foreign keys, unknown keys."""
    lines = [f"{folder.path.resolve().name}: {len(folder.tables):,} tables, {len(folder.relations):,} foreign keys"]
    for name, table in folder.tables.items():
        lines += ["", f"{name}: {table.frame.num_rows:,} rows of {table.path.name}"]
        fields = [*_fields(folder, table)]
        width = max(len(label) for label, _ in fields)
        lines += [f"  {label:<{width}}  {text}" for label, text in fields]
    for fault in folder.faults:
        lines += ["", fault]
    fill = lambda line: textwrap.fill(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(map(fill, lines))


def _fields(folder: TableFolder, table: KeyedTable) -> Iterator[tuple[str, str]]:
    """Yield the label and text of each line of a table."""
    from pyarrow import compute

    cells = table.frame.column
    empty = lambda name: np.count_nonzero(~filled(cells(name)))
    counted = lambda **counts: [f"{count:,} {what}" for what, count in counts.items() if count]
    yield "key", table.of.get("key", "none: ids are numbers of rows, from 0")
    if time := table.of.get("time"):
        ends = compute.min_max(cells(time)).as_py()
        yield "time", ", ".join([time, f"{ends['min']} to {ends['max']}", *counted(empty=empty(time))])
    values = {name: compute.count_distinct(cells(name)).as_py() for name in table.categories}
    more = {name: ", ".join(counted(values=values.get(name, 0), empty=empty(name))) for name in table.features}
    yield "features", ", ".join(f"{name} ({more[name]})" if more[name] else name for name in more) or "none"
    for r in folder.relations:
        if r.source == table.name:
            edges = [f"-> {r.target}", f"{len(r.rows):,} edges"]
            yield r.column, ", ".join([*edges, *counted(empty=r.empty, unknown=r.unknown)])
    for what, column in table.apart.items():
        is_there = column in table.frame.column_names
        yield what, ", ".join([column, *counted(empty=empty(column))] if is_there else [column, "not there"])
    left = [name for name in table.frame.column_names if name not in (*table.used, *table.features)]
    if left:
        yield "left out", ", ".join(left)


def described(folder: TableFolder) -> dict[str, Any]:
    """Return the schema for JSON: what tables.toml has, rows, features, edges, and keys that are unknown."""
    tables = {name: {"rows": of.frame.num_rows, "features": of.features} for name, of in folder.tables.items()}
    keys = [{"edges": len(of.rows)} | {k: getattr(of, k) for k in FOREIGN} for of in folder.relations]
    return {"spec": folder.spec, "tables": tables, "foreign": keys}


def _guessed(path: Path) -> dict[str, Any]:
    """Return what tables.toml would have: keys by names and unique values, foreign keys by names and shared values."""
    from pyarrow import compute

    stems = [file.name.partition(".")[0] for file in _files(path)]
    names = [file.name if stems.count(stem) > 1 else stem for file, stem in zip(_files(path), stems)]
    files = {re.sub("[^A-Za-z0-9_-]+", "_", name): file for name, file in zip(names, _files(path))}
    spec: dict[str, dict[str, Any]] = {name: {"file": file.name} for name, file in files.items()}
    frames = {name: read_frame(file, KNOWN["labels"], lambda _: [], lambda _: [])[0] for name, file in files.items()}
    values = {
        (name, column): coded(cells.take(np.linspace(0, len(cells) - 1, min(len(cells), SAMPLED), dtype=int)), column)[
            1
        ]
        for name, frame in frames.items()
        for column, all_cells in zip(frame.column_names, frame.columns)
        if (is_text(all_cells) or _is_whole(all_cells)) and len(cells := all_cells.filter(filled(all_cells)))
    }
    distinct = lambda name, column: compute.count_distinct(frames[name].column(column)).as_py()
    is_unique = lambda name, column: (name, column) in values and distinct(name, column) == frames[name].num_rows
    words, all_words = {name: _words(name) for name in frames}, {word for name in frames for word in _words(name)}
    for name, frame in frames.items():
        columns = frame.column_names
        keys = [column for column in columns if _word(column) in ("id", "key", *words[name])]
        is_key = is_text(frame.column(0)) or _word(columns[0]).endswith(ENDS)
        keys += [columns[0]] if is_key and _word(columns[0]) not in all_words else []
        if key := next((column for column in keys if is_unique(name, column)), ""):
            spec[name]["key"] = key
    keys = {name: of["key"] for name, of in spec.items() if "key" in of}
    ids = {name: {*coded(frames[name].column(key), key)[1].tolist()} for name, key in keys.items()}
    last = lambda key: _word(key.partition("_")[2])  # custkey of c_custkey
    named = {name: {*words[name], _word(key), last(key)} - {*ENDS, ""} for name, key in keys.items()}
    for name, frame in frames.items():
        found = {column: _named(column, values[of, column], ids, named) for of, column in values if of == name}
        found.pop(spec[name].get("key"), None)
        spec[name]["foreign"] = {column: other for column, other in found.items() if other}
        times = [c for c in frame.column_names if str(frame.column(c).type).startswith(("date", "timestamp"))]
        spec[name] |= dict(zip(("time",), times))
    targets = [f"{name}.{c}" for name, of in frames.items() for c in of.column_names if c.lower() in KNOWN["labels"]]
    return {"table": spec} | ({"target": targets[0]} if len(targets) == 1 else {})


def _word(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())


def _words(table: str) -> list[str]:
    """Return the words that name a key of a table: of customers customerid, customer, customersid and so on."""
    word = _word(table)
    singulars = {word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)}
    return [singular + end for singular in singulars for end in (*ENDS, "")]


def _is_whole(column: ChunkedArray) -> bool:
    """Whether a column has integers, or floats that are, as pandas makes them where cells are empty."""
    from pyarrow import types

    if not types.is_floating(column.type):
        return types.is_integer(column.type)
    numbers = column.filter(filled(column)).to_numpy()
    return bool(np.all((numbers == np.rint(numbers)) & (np.abs(numbers) < 2.0 ** np.finfo(numbers.dtype).nmant)))


def _named(column: str, values: np.ndarray, ids: dict[str, set], named: dict[str, set[str]]) -> str:
    """Return the table whose key a column has, "" for none: by its name if they share a value, else by ALIKE of its values.

    Numbers from 0 or 1 on are shared by chance, so there the name has to end as a key does; of several the smallest table.
    """
    word, texts = _word(column), values.tolist()
    shares = {name: sum(text in keys for text in texts) / len(texts) for name, keys in ids.items()}
    by_name = [name for name in ids if shares[name] and word in named[name]]
    by_name += [name for name in ids if shares[name] and word.endswith(tuple(of for of in named[name] if len(of) > 4))]
    is_run = lambda keys: not {0, 1}.isdisjoint(keys)
    by_value = [name for name in ids if shares[name] >= ALIKE and (word.endswith(ENDS) or not is_run(ids[name]))]
    return next(iter([*by_name, *sorted(by_value, key=lambda name: (-shares[name], len(ids[name])))]), "")


def _scale(column: ChunkedArray) -> str:
    """Return the mean and deviation of a column of numbers as TOML, of a constant one 1, to 6 digits."""
    numbers = numbers_of(column.filter(filled(column)), "").astype(np.float64)
    mean, deviation = (numbers.mean(), numbers.std()) if len(numbers) else (0.0, 0.0)
    return f"[{float(f'{mean:.6g}')!r}, {float(f'{deviation:.6g}') or 1.0!r}]"


def _toml(folder: TableFolder) -> str:
    """Return the text of tables.toml; empty cells of features are 0."""
    quoted = lambda text: json.dumps(text, ensure_ascii=False)
    target = f"target = {quoted(folder.spec['target'])}" if "target" in folder.spec else '# target = "TABLE.COLUMN"'
    is_empty = any(not filled(t.frame.column(name)).all() for t in folder.tables.values() for name in t.features)
    lines = [target] + ['missing = "zero"  # of empty cells of features'] * is_empty
    lines += ['unknown = "empty"  # keys that no row has: no edge'] * bool(folder.faults)
    for name, of in folder.spec["table"].items():
        of_table = [f"{key} = {quoted(of[key])}" for key in ("file", "key", "time") if key in of]
        lines += ["", f"[table.{name}]", *of_table]
        pairs = [f"{quoted(column)} = {quoted(other)}" for column, other in of.get("foreign", {}).items()]
        lines += [f"foreign = {{{', '.join(pairs)}}}"] if pairs else []
        texts = (table := folder.tables[name]).categories
        numbers = [column for column in table.features if column not in texts]
        lines += [f"features = {quoted(numbers)}"] + [f"one_hot = {quoted(texts)}"] * bool(texts)
        lines += [f"[table.{name}.scale]  # (x - mean) / deviation"] * bool(numbers)
        lines += [f"{quoted(column)} = {_scale(table.frame.column(column))}" for column in numbers]
    return "\n".join([*lines, ""])
