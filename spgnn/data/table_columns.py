"""Columns of tables, of pyarrow, which those of pandas and polars become: ids by their value, numbers and text.

Shapes: m rows, k ids.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from ..errors import FormatError, InputError
from .readers.frames import arrow, check_names
from .readers.heads import IDS
from .readers.make_graph import is_none

if TYPE_CHECKING:
    from pyarrow import Array, ChunkedArray, Table

Coded = tuple[np.ndarray, np.ndarray]  # (codes (m,), ids (k,) int64 or str objects)
ROUNDED = re.compile(r"[0-9](\.[0-9]+)?e\+[0-9]+", re.IGNORECASE)  # as pandas writes floats


def as_table(frame, where: str, of_index: tuple[str, ...]) -> Table:
    """Return a table of pandas, polars or pyarrow as a pyarrow Table, with the levels of its index that have such a name."""
    pyarrow = arrow(where)
    if hasattr(frame, "iloc"):
        levels = [name for name in frame.index.names if name and str(name).lower() in of_index]
        frame = frame.reset_index(levels) if levels else frame
        names = [str(name) for name in frame.columns]
        check_names(where, names)
        return pyarrow.table({name: _column(frame.iloc[:, at]) for at, name in enumerate(names)})
    frame = frame.to_arrow() if hasattr(frame, "to_arrow") else frame
    if not isinstance(frame, pyarrow.Table):
        raise InputError(f"{where}: got a {type(frame).__name__}; expected a table of pandas, polars or pyarrow")
    check_names(where, frame.column_names)
    return frame


def _column(series) -> Array:
    """Return a column of pandas for pyarrow, one of several types as text."""
    import pyarrow

    if hasattr(series, "sparse"):
        series = series.sparse.to_dense()
    try:
        return pyarrow.array(series, from_pandas=True)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
        return pyarrow.array([None if is_none(value) else str(value) for value in series], "string")


def has_numbers(column: ChunkedArray) -> bool:
    """Whether a column has numbers, or True and False."""
    from pyarrow import types

    kinds = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(is_kind(column.type) for is_kind in kinds)


def numbers_of(column: ChunkedArray, where: str) -> np.ndarray:
    """Return a column as numbers, NaN where one is missing; FormatError for text."""
    from pyarrow import types

    if not has_numbers(column):
        raise FormatError(f"{where} holds {column.type}, such as {column[0].as_py()!r}; expected numbers")
    if column.null_count or types.is_boolean(column.type) or types.is_decimal(column.type):
        column = column.cast("double", safe=False)
    values = column.to_numpy()
    return values.astype(np.float32) if values.dtype == np.float16 else values


def texts_of(column: ChunkedArray) -> np.ndarray:
    """Return a column as text, "" where a value is missing."""
    words = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in column.to_pylist()]
    words = [int(value) if isinstance(value, float) and value.is_integer() else value for value in words]  # 1.0 is 1
    return np.array(["" if value is None else str(value) for value in words], object)


def coded(column: ChunkedArray, where: str) -> Coded:
    """Return (codes (m,), ids (k,) int64 or str objects) of a pyarrow column, each id of its rows once, by its value.

    12, 12.0 and the text 12 are one id, and bytes are the text that they hold in UTF-8.
    Raises: FormatError where an id is missing, and for floats beyond the integers that their type holds.
    """
    if column.type.num_fields:  # a list, or a struct
        raise FormatError(f"{where}: ids are {column.type}; expected one number or text in a row")
    words = column if hasattr(column.type, "index_type") else column.dictionary_encode()
    words = words.unify_dictionaries().combine_chunks()
    numbers = np.nan_to_num(words.indices.to_numpy(zero_copy_only=False), nan=-1).astype(np.int64)  # nan: is missing
    used, codes = np.unique(numbers, return_inverse=True)  # a dictionary may have more, as pandas leaves
    texts = ["" if number < 0 else text for number, text in zip(used, _id_texts(words.dictionary, used, where))]
    lost = np.array([not text for text in texts], bool)[codes]
    if lost.any():
        first = f"the first in row {np.argmax(lost) + 1}"
        raise FormatError(f"{where}: {np.count_nonzero(lost):,} ids are missing, {first}; drop these rows")
    is_whole = all(IDS.fullmatch(text.encode()) for text in texts)
    values, again = np.unique(np.array(texts, np.int64 if is_whole else object), return_inverse=True)
    return again[codes], values


def _id_texts(dictionary: Array, used: np.ndarray, where: str) -> list[str]:
    """Return ids of a dictionary as text, 12.0 as 12, and "" for one that is missing."""
    from pyarrow import types

    values = dictionary.take(np.maximum(used, 0)).to_pylist() if len(dictionary) else [None] * len(used)
    if types.is_floating(dictionary.type):
        limit = 2.0 ** (np.finfo(dictionary.type.to_pandas_dtype()).nmant + 1)
        if far := [value for value in values if value is not None and abs(value) > limit]:
            raise FormatError(
                f"{where}: {len(far):,} ids are floats such as {far[0]!r}, and above {limit:.0f} floats skip integers; read "
                "them as integers or as text"
            )
    try:
        values = [value.decode() if isinstance(value, bytes) else value for value in values]
    except UnicodeDecodeError:
        raise FormatError(f"{where}: ids are {dictionary.type} that is no UTF-8; write them as text") from None
    texts = ["" if is_none(value) else str(value).strip() for value in values]
    if rounded := next(filter(ROUNDED.fullmatch, texts), None):
        raise FormatError(
            f"{where}: an id is {rounded}, a float without its last digits; write ids as integers or text"
        )
    return [text.partition(".")[0] if IDS.fullmatch(text.encode()) else text for text in texts]


def places_of(ids: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return where each value is in ids, -1 where it is not."""
    if ids.dtype.kind == "O":
        number = {name: place for place, name in enumerate(ids.tolist())}
        return np.fromiter((number.get(value, -1) for value in values.tolist()), np.int64, len(values))
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids[order], values), len(ids) - 1)
    return np.where(ids[order[at]] == values, order[at], -1) if len(ids) else np.full(len(values), -1)
