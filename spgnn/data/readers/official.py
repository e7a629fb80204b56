"""Files of an official split of edges, train, valid and test: triples of a knowledge graph; lines `user item item ...`.

Shapes: N entities, R relations, L edges of all files, one after another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import FormatError
from ...graph import TRAIN, Graph
from ..bipartite import bipartite_graph
from ..formats import Progress, reader
from ..table_columns import ROLES, coded
from ..tables import with_notes
from .frames import arrow, read_words
from .heads import BOM, SOURCE_NAMES, TARGET_NAMES, cells_of
from .lines import read_rows, whole
from .make_graph import FREE_NODES, NODES_PER_EDGE, coo_graph, graph_name, naming
from .text import line_blocks, peek, without_packing

if TYPE_CHECKING:
    from pyarrow import ChunkedArray

FILE = r"(?i:(train|valid|val|dev|test)\.(?:%s)(?:\.gz|\.xz|\.bz2)?)"
TABLES, LISTS = "txt|tsv|csv|nt", "txt"
KINDS = {".csv": ",", ".tsv": "\t", ".nt": "nt"}  # what separates the fields of a line, see _lines
NUMBERS, BLANKS = re.compile(rb"[\d \r\n]*\d[\d \r\n]*"), re.compile(rb"[ \v\f]+")
ENDS = re.compile(rb"^\t+|\t+(?=\r?$)", re.MULTILINE)
STATEMENT = re.compile(  # of N-Triples, or a comment
    rb"""^[ \t]*(?:(<[^>\n]*>|_:\S+)[ \t]*(<[^>\n]*>)[ \t]*(<[^>\n]*>|_:\S+|"(?:[^"\\\n]|\\.)*"(?:@[\w-]+|\^\^<[^>\n]*>)?)"""
    rb"""[ \t]*\.[ \t]*)?(?:\#[^\n]*)?(\r?)$""",
    re.MULTILINE,
)
ESCAPES = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)")
TRIPLE = ("triple is", "triples are")


def is_triples(path: Path) -> bool:
    """a folder with train.*, valid.* and test.* of lines head, relation, tail, or their common prefix; a file .nt of N-Triples."""
    if _kind(path) == "nt" and path.is_file():
        return True
    head = _first_lines(path, TABLES)
    has_threes = all(len(line.split()) in (0, 3) for line in head[: head.rfind(b"\n") + 1].splitlines())
    return bool(head) and (has_threes or not NUMBERS.fullmatch(head))


def is_interactions(path: Path) -> bool:
    """a folder with train.txt and test.txt of lines user item item ..., or the common prefix of such files."""
    return bool(NUMBERS.fullmatch(_first_lines(path, LISTS)))


@reader("triples", detect=is_triples)
def read_triples(path: Path, progress: Progress = None) -> Graph:
    """Read triples: head h, relation r, tail t -> the edge h -> t with the label r, in the part of its file.

    Returns: Graph with an edge for each line; ids are entities, edge_classes relations, in ascending order.
    Raises:  FormatError with file:line for a line without three fields.
    """
    files = [(TRAIN, path)] if path.is_file() else _files(path, TABLES)
    parts = [_triples(file, progress) for _, file in files]
    split_L = np.repeat(np.array([role for role, _ in files], np.int8), [len(columns[0]) for columns, _ in parts])
    heads, relations, tails = ([chunk for columns, _ in parts for chunk in columns[at].chunks] for at in range(3))
    ends, ids_N = coded(arrow(path).chunked_array(heads + tails), f"{path}: entities")
    relation_L, names_R = coded(arrow(path).chunked_array(relations), f"{path}: relations")
    src, dst = np.split(ends, 2)
    pair_L, is_train = np.unique(src * len(ids_N) + dst, return_inverse=True)[1], split_L == TRAIN
    shown = lambda at: f"({ids_N[src[at]]}, {names_R[relation_L[at]]}, {ids_N[dst[at]]})"
    more = {
        "self_loops": (TRIPLE, np.flatnonzero(src == dst), "of an entity with itself, and stay", shown),
        "unseen_entities": (
            ("entity is", "entities are"), _unseen(ends[np.tile(is_train, 2)], ids_N), "only in valid or test", ids_N.item
        ),
        "unseen_relations": (
            ("relation is", "relations are"), _unseen(relation_L[is_train], names_R), "only in valid or test", names_R.item
        ),
    }  # fmt: skip
    if any(_kind(file) == "nt" for _, file in files):
        first, last = np.searchsorted(ids_N, ['"', "#"])  # the names that begin with a quote
        is_literal = (dst >= first) & (dst < last)
        more["literals"] = (TRIPLE, np.flatnonzero(is_literal), "of a literal, which is an entity", shown)
    meta = _counts_and_notes(pair_L * len(names_R) + relation_L, split_L, TRIPLE, shown, more)
    titles = [f"the first line ({title}) was taken for names of columns" for _, title in parts if title]
    return coo_graph(
        path, src, dst, len(ids_N), ids=ids_N, edge_y=relation_L, edge_split=None if path.is_file() else split_L, edge_classes=tuple(map(str, names_R)),
        meta=with_notes(meta, titles) | {"edge_label": "relation", "dropped_lines": len(titles)},
    )  # fmt: skip


@reader("interactions", detect=is_interactions)
def read_interactions(path: Path, progress: Progress = None) -> Graph:
    """Read users and items: a line u i j -> the edges u -> i, u -> j between two kinds of nodes, in the part of its file.

    Returns: Graph with an edge for each item of a line; users and items are 0 to the largest of all files.
    Raises:  FormatError with file:line for what is no integer.
    """
    parts, n_users = [], 0
    for role, file in _files(path, LISTS):
        for values, counts, line in read_rows(file, "number", progress=progress):
            numbers, counts = whole(values, counts, (file, line), "number"), counts[counts > 0]
            is_item = np.ones(len(numbers), bool)
            is_item[np.cumsum(counts) - counts] = False
            n_users = max(n_users, int(numbers[~is_item].max(initial=-1)) + 1)
            users = np.repeat(numbers[~is_item], counts - 1)
            parts.append((users, numbers[is_item], np.full(len(users), role, np.int8)))
    user_L, item_L, split_L = (np.concatenate(of) for of in zip(*parts))
    n_items, L = int(item_L.max(initial=-1)) + 1, len(user_L)
    if not L or n_users + n_items > max(FREE_NODES, NODES_PER_EDGE * L):
        have = f"{L:,} interactions, users up to {n_users - 1}, items up to {n_items - 1}"
        raise FormatError(f"{path}: {have}; expected lines of a user and items, numbered from 0 without gaps")
    shown, is_train = lambda at: f"user {user_L[at]}, item {item_L[at]}", split_L == TRAIN
    users, items = np.arange(n_users), np.arange(n_items)
    more = {
        "unseen_users": (("user is", "users are"), _unseen(user_L[is_train], users), "without an item in train", str),
        "unseen_items": (("item is", "items are"), _unseen(item_L[is_train], items), "of no user in train", str),
    }
    nouns = ("interaction is", "interactions are")
    meta = _counts_and_notes(user_L * n_items + item_L, split_L, nouns, shown, more)
    ends, fields = ((user_L, users), (item_L, items)), {"edge_split": split_L, "name": graph_name(path)}
    with naming(path):
        return bipartite_graph(*ends, ("user", "item"), meta=meta, **fields)


def _split_files(path: Path, endings: str) -> list[tuple[int, Path]]:
    """Return (role, file) of the parts with such endings, in the order train, valid, test; [] where there is none."""
    folder, start = (path, "") if path.is_dir() else (path.parent, re.escape(path.name) + "[._-]")
    name = re.compile(start + FILE % endings)
    try:
        files = [] if path.is_file() else sorted(folder.iterdir())
    except OSError:
        return []
    found = [(ROLES[part[1].lower()], file) for file in files if (part := name.fullmatch(file.name)) and file.is_file()]
    return sorted(found, key=lambda of: of[0])


def _files(path: Path, endings: str) -> list[tuple[int, Path]]:
    """Return _split_files, each part once. Raises: FormatError without a train file, and for two files of one part."""
    found = _split_files(path, endings)
    if not found or found[0][0] != TRAIN:
        have = f", there is {', '.join(file.name for _, file in found)}" if found else ""
        raise FormatError(
            f"{path}: has no train file{have}; expected train, valid and test .{endings.replace('|', ', .')}"
        )
    for (role, file), (other, twice) in zip(found, found[1:]):
        if role == other:
            raise FormatError(f"{path}: {file.name} and {twice.name} are one part of the split; remove one")
    return found


def _first_lines(path: Path, endings: str) -> bytes:
    """Return the first bytes of the first part of a split, b"" where there are not two."""
    files = _split_files(path, endings)
    return (peek(files[0][1]) or b"\n") if len({role for role, _ in files}) > 1 else b""


def _unseen(code_k: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Return the places of names that are none of the codes."""
    return np.flatnonzero(np.bincount(code_k, minlength=len(names)) == 0)


def _counts_and_notes(key_L: np.ndarray, split_L: np.ndarray, nouns: tuple, shown: Any, more: dict) -> dict[str, Any]:
    """Return the meta of a graph: how many edges of one key are there twice, in a file and over files, and a note with the first.

    Args: more  of what is counted too: (nouns, places, what these are, place -> its name).
    """
    order = np.argsort(key_L, kind="stable")
    again, before = order[1:], order[:-1]
    is_equal, is_in_file = key_L[again] == key_L[before], split_L[again] == split_L[before]
    twice, shared = np.sort(again[is_equal & is_in_file]), np.sort(again[is_equal & ~is_in_file])
    found = {
        "duplicates": (nouns, twice, "in a file twice, and stay", shown),
        "shared": (nouns, shared, "in valid or test, and in an earlier file too", shown),
    } | more
    rows = [row for row in found.values() if len(row[1])]
    notes = [f"{len(at):,} {nouns[len(at) > 1]} {said}: {name(at[0])}" for nouns, at, said, name in rows]
    return with_notes({"official_split": {what: len(row[1]) for what, row in found.items()}}, notes)


def _triples(path: Path, progress: Progress) -> tuple[list[ChunkedArray], str]:
    """Return the columns head, relation and tail of a file, and its line of names, "" without one."""
    first = peek(path).removeprefix(BOM).partition(b"\n")[0].rstrip(b"\r")
    kind = _kind(path) or ("\t" if b"\t" in first else "")
    cells = cells_of(first, kind if kind != "nt" else "")
    s, t = (next((at for at, cell in enumerate(cells) if cell.lower() in of), 3) for of in (SOURCE_NAMES, TARGET_NAMES))
    has_title, separator = len(cells) == 3 and max(s, t) < 3, "," if kind == "," else "\t"
    blocks = lambda: _lines(path, kind, has_title, progress)
    try:
        columns = read_words(path, (block for block, _ in blocks()), separator, 3)
        if not len(columns[0]) or any(column.null_count for column in columns):
            raise FormatError(f"{path}: holds no triple; expected lines of head, relation, tail")
    except FormatError:
        for block, line in blocks():
            _check_fields(block, path, line, separator)
        raise
    s, r, t = (s, 3 - s - t, t) if has_title else (0, 1, 2)
    return [columns[s], columns[r], columns[t]], ", ".join(cells) if has_title else ""


def _kind(path: Path) -> str:
    """Return what the ending of a file says of its lines, see KINDS."""
    return KINDS.get(Path(without_packing(path.name.lower())).suffix, "")


def _statements(block: bytes, path: Path, line: int) -> bytes:
    """Return lines of N-Triples as three fields between tabs, with letters for their escapes. Raises: FormatError."""
    if b"\\u" in block or b"\\U" in block:
        block = ESCAPES.sub(_letter, block)
    found, count = STATEMENT.subn(rb"\1\t\2\t\3\4", block)
    if count <= block.count(b"\n"):
        at = next(at for at, text in enumerate(block.split(b"\n")) if not STATEMENT.fullmatch(text))
        raise FormatError(f"{path}:{line + at}: no statement of N-Triples; expected <head> <relation> <tail> .")
    return found


def _letter(escape: re.Match) -> bytes:
    code = int(escape[1] or escape[2] or b"0", 16)
    is_letter = 0x80 <= code < 0xD800 or 0xE000 <= code < 0x110000  # ASCII: it may be a quote or a newline
    return chr(code).encode() if is_letter else escape[0]


def _lines(path: Path, kind: str, has_title: bool, progress: Progress) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of lines whose fields are separated by commas or tabs, and the number of the first line of each.

    Args: kind  what separates them in the file: a comma, a tab, "" blanks; or nt, for N-Triples.
    """
    for block, line in line_blocks(path, progress):
        if line == 1:
            block = block.removeprefix(BOM)
            block = b"\n" + block.partition(b"\n")[2] if has_title else block
        block = _statements(block, path, line) if kind == "nt" else block
        block = block if kind in KINDS.values() else BLANKS.sub(b"\t", block)
        yield block if kind in (",", "\t") else ENDS.sub(b"", block), line


def _check_fields(block: bytes, path: Path, line: int, separator: str) -> None:
    """Raise FormatError naming the first line that has not three fields."""
    for at, text in enumerate(block.split(b"\n")):
        cells = cells_of(text, ",") if separator == "," else text.decode("utf-8", "replace").strip("\r").split("\t")
        if text.strip(b"\r") and (len(cells) != 3 or not all(map(str.strip, cells))):
            have = "a field is empty" if len(cells) == 3 else f"{len(cells)} field{'s' * (len(cells) != 1)}"
            by = "commas" if separator == "," else "tabs, or blanks in a .txt without tabs"
            raise FormatError(f"{path}:{line + at}: {have}; expected head, relation, tail, separated by {by}")
