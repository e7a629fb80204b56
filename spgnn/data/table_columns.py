"""Columns of tables, of pyarrow, which those of pandas and polars become: ids by their value, numbers, text, labels and splits.

Shapes: m rows, k ids.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..config import TableConfig
from ..errors import FormatError, InputError
from ..graph import NO_SPLIT, TEST, TRAIN, VAL
from .readers.frames import arrow, check_names
from .readers.heads import IDS, is_number_text
from .readers.lines import number_wanted
from .readers.make_graph import is_none, named_labels, roles_of, split_of_array

if TYPE_CHECKING:
    from pyarrow import Array, ChunkedArray, Table

Coded = tuple[np.ndarray, np.ndarray]  # (codes (m,), ids (k,) int64 or str objects)
MOST_ID = 10**18  # above it, digits are a name, see IDS
SAMPLED = 10_000  # rows in which values that are no numbers are looked for first
MASKS = ("train_mask", "val_mask", "test_mask")
ID_NAMES = ("id", "node", "node_id", "nodeid", "name")
KNOWN = {"labels": ("label", "labels", "class", "classes", "y", "target"), "split": ("split", "role", "fold", *MASKS)}
APART = (*ID_NAMES, *KNOWN["labels"], *KNOWN["split"])  # columns that are features only where they are named
ROLES = {"train": TRAIN, "training": TRAIN, "val": VAL, "valid": VAL, "validation": VAL, "dev": VAL, "test": TEST}
ROLES |= dict.fromkeys(("", "none", "unlabelled", "unlabeled"), NO_SPLIT)
ROUNDED = re.compile(r"[0-9](\.[0-9]+)?e\+[0-9]+", re.IGNORECASE)  # as pandas writes floats


def known_columns(what: str, names: Sequence[str], id: str) -> list[str]:
    """Return the columns of labels or of the split that have a known name, or the only one beside the ids; else none."""
    others = [name for name in names if name != id] if len(names) > 1 else list(names)
    known = [name for name in others if name.lower() in KNOWN[what]]
    known = known if [name.lower() for name in known] == list(MASKS) else known[:1]
    return known or (others if len(others) == 1 else [])


def id_column(names: Sequence[str], wanted: TableConfig) -> str:
    """Return the column of ids of a table of nodes: --id, else one of a known name, else the first."""
    return wanted.id or next((name for name in names if name.lower() in ID_NAMES), names[0])


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
    return pyarrow.table({name: _plain(frame.column(name)) for name in frame.column_names})


def _column(series) -> Array:
    """Return a column of pandas for pyarrow, one of several types as text."""
    import pyarrow

    if hasattr(series, "sparse"):
        series = series.sparse.to_dense()
    try:
        return pyarrow.array(series, from_pandas=True)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
        return pyarrow.array([None if is_none(value) else str(value) for value in series], "string")


def _plain(column: ChunkedArray) -> ChunkedArray:
    """Return a column of views of text as text, and one of an extension, such as UUIDs, as the text of its values."""
    import pyarrow

    if column.type in (pyarrow.string_view(), pyarrow.binary_view()):
        return column.cast("string" if column.type == pyarrow.string_view() else "binary")
    if not isinstance(column.type, pyarrow.BaseExtensionType) or column.type.storage_type.num_fields:
        return column
    return pyarrow.chunked_array([[None if value is None else str(value) for value in column.to_pylist()]], "string")


def has_numbers(column: ChunkedArray) -> bool:
    """Whether a column has numbers, or True and False."""
    from pyarrow import types

    kinds = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(is_kind(column.type) for is_kind in kinds)


def numbers_of(column: ChunkedArray, where: str) -> np.ndarray:
    """Return a column as numbers, NaN where one is missing; FormatError for text."""
    from pyarrow import types

    if not has_numbers(column):
        raise FormatError(f"{where}{odd_value(column).said or f' holds {column.type}; expected numbers'}")
    if column.null_count or types.is_boolean(column.type) or types.is_decimal(column.type):
        column = column.cast("double", safe=False)
    values = column.to_numpy()
    return values.astype(np.float32) if values.dtype == np.float16 else values


class OddValue(NamedTuple):
    """The first value of a column of text that is no number, its row from 1 (0: there is none), and what to say of it.

    Args: is_alone  most others are numbers, or it is one in other letters.
          said      of a column of numbers: ": row 2 is 'x3'; expected a number".
    """

    text: str
    row: int
    is_alone: bool
    said: str


def odd_value(column: ChunkedArray) -> OddValue:
    """Return what makes a column no numbers."""
    from pyarrow import types

    kind = column.type.value_type if hasattr(column.type, "index_type") else column.type
    if kind.num_fields and not hasattr(column.type, "index_type"):
        return OddValue("", 0, True, " holds lists; give each entry a column of its own")
    if column.null_count == len(column):
        return OddValue("", 0, True, " has no value")
    if has_numbers(column) or not any(is_kind(kind) for is_kind in (types.is_string, types.is_large_string)):
        return OddValue("", 0, False, "")
    for rows in (column[:SAMPLED], column[: len(column) if len(column) > SAMPLED else 0]):
        texts = texts_of(rows)
        odd = [row for row, text in enumerate(texts) if text and not is_number_text(text.strip())]
        if odd:
            first, filled = texts[odd[0]], sum(map(bool, texts))
            wanted = number_wanted(first, is_weight=False)
            is_alone = 2 * len(odd) < filled or wanted != number_wanted("", is_weight=False)
            return OddValue(first, odd[0] + 1, is_alone, f": row {odd[0] + 1} is {first!r}; {wanted}")
    return OddValue("", 0, True, " holds numbers as text; make them numbers: pandas.to_numeric(column)")


def texts_of(column: ChunkedArray) -> np.ndarray:
    """Return a column as text, "" where a value is missing."""
    codes, texts = coded_texts(column)
    return texts[codes]


def coded_texts(column: ChunkedArray) -> Coded:
    """Return (codes (m,), texts (k,) objects) of a column, "" where a value is missing; a text may have several codes."""
    if hasattr(column.type, "index_type") or not (column.type.num_fields or str(column.type) == "null"):
        words = (column if hasattr(column.type, "index_type") else column.dictionary_encode()).unify_dictionaries()
        words = words.combine_chunks()
        codes, values = words.indices.fill_null(len(words.dictionary)).to_numpy(), [*words.dictionary.to_pylist(), None]
    else:
        codes, values = np.arange(len(column)), column.to_pylist()
    words = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values]
    words = [int(value) if isinstance(value, float) and value.is_integer() else value for value in words]  # 1.0 is 1
    return codes, np.array(["" if value is None else str(value) for value in words], object)


def coded(column: ChunkedArray, where: str) -> Coded:
    """Return (codes (m,), ids (k,) int64 or str objects) of a pyarrow column, each id of its rows once, by its value.

    12, 12.0 and the text 12 are one id, and bytes are the text that they hold in UTF-8.
    Raises: FormatError where an id is missing, and for floats beyond the integers that their type holds.
    """
    column = _plain(column)
    if str(column.type).lstrip("u").startswith("int") and not column.null_count:
        numbers = column.to_numpy()
        if numbers.min(initial=0) >= 0 and numbers.max(initial=0) < MOST_ID:
            values, codes = np.unique(numbers.astype(np.int64), return_inverse=True)
            return codes, values
    if column.type.num_fields:  # a list, or a struct
        raise FormatError(f"{where}: ids are {column.type}; expected one number or text in a row")
    words = column if hasattr(column.type, "index_type") else column.dictionary_encode()
    words = words.unify_dictionaries().combine_chunks()
    numbers = np.nan_to_num(words.indices.to_numpy(zero_copy_only=False), nan=-1).astype(np.int64)  # nan: is missing
    is_used = np.bincount(numbers + 1) > 0  # a dictionary may have more, as pandas leaves
    used, codes = np.flatnonzero(is_used) - 1, (np.cumsum(is_used) - 1)[numbers + 1]
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


def labels_of(where: str, column: ChunkedArray) -> dict[str, Any]:
    """Return y and classes of a column of labels: text and booleans have names, and a missing one is -1."""
    if not has_numbers(column) or str(column.type) == "bool":
        codes, texts = coded_texts(column)
        fields = named_labels(where, texts)
        return fields | {"y": fields["y"][codes]}
    return named_labels(where, numbers_of(column, where))


def split_of_columns(where: str, columns: dict) -> np.ndarray:
    """Return the split of a column of roles, or of three of masks, in the order train, val, test."""
    where = f"{where}: column {', '.join(map(repr, columns))}"
    is_mask = [str(column.type) == "bool" or name.lower() in MASKS for name, column in columns.items()]
    if not any(is_mask) and len(columns) == 1:
        return _roles(where, *columns.values())
    masks_N3 = np.stack([np.nan_to_num(numbers_of(c, where)) for c in columns.values()], axis=1)
    if len(columns) != 3 or not np.isin(masks_N3, (0, 1)).all():
        raise FormatError(f"{where}: expected train, val and test in one column, or masks of the three in three")
    return split_of_array(where, masks_N3.astype(bool))


def _roles(where: str, column: ChunkedArray) -> np.ndarray:
    if has_numbers(column):
        values = numbers_of(column, where)
        return roles_of(where, np.where(np.isnan(values), NO_SPLIT, values).astype(np.int64))
    return split_of_words(where, texts_of(column))


def split_of_words(where: str, texts: np.ndarray) -> np.ndarray:
    """Return the split of train, val, test and their other names, in any letters, (N,) int8."""
    words = ["" if text is None else str(text).strip().lower() for text in texts.ravel()]
    unknown = next((word for word in words if word not in ROLES), None)
    if unknown is not None:
        raise FormatError(f"{where}: {unknown!r} is no part of a split; expected train, val or test, or nothing")
    return np.array([ROLES[word] for word in words], np.int8).reshape(texts.shape)
