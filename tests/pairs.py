"""The default run has each pair of values of a test's parameters; the items beyond are marked `full`.

Parameters of 8, 3, 3 and 3 values are 216 items; every pair of values is in 24 of them. Of a parameter of MANY values,
such as a list of models, each is in two items. A fault that takes three values at once to show is found by
`runs/test -m full`, which runs the rest. A test whose parameters do meet all at once is marked `every`. On MPI ranks,
which differ from threads in what tests/dist runs, a test has MPI_ITEMS item per size.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from random import Random
from zlib import crc32

import pytest

LEAST = 12  # items of a test that are thinned out
MANY = 8  # values
MPI_ITEMS = 1


def full_beyond(count: int, values: Iterable) -> list:
    """Return parameters of which the default run has the first ones; the others are marked `full`."""
    values = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*value, marks=pytest.mark.full if i >= count else ()) for i, value in enumerate(values)]


def pairs(rows: Sequence[Sequence[Hashable]], seed: int = 0) -> list[int]:
    """Return the numbers of rows that have together every pair of values of two columns that any row has.

    A column of more than MANY values is no part of pairs: each of its values is in two rows, or in one if that is all.
    Greedy: the next row is one with the most that is new, drawn among equals from the seed.

    Args: rows  a row for each item, a column for each parameter.
    """
    long = [len(set(column)) > MANY for column in zip(*rows)]
    missing: dict[tuple, int] = {}
    new_in: list[list[tuple]] = []
    for row in rows:
        cells = list(enumerate(row))
        new_in.append([*combinations([cell for cell in cells if not long[cell[0]]], 2), *cells])
        for new in new_in[-1]:
            is_long = new in cells and long[new[0]]
            missing[new] = min(missing.get(new, 0) + 1, 2 if is_long else 1)
    order, chosen = list(range(len(rows))), []
    Random(seed).shuffle(order)
    while any(missing.values()):
        chosen.append(max(order, key=lambda i: sum(missing[new] > 0 for new in new_in[i])))
        order.remove(chosen[-1])
        for new in new_in[chosen[-1]]:
            missing[new] = max(missing[new] - 1, 0)
    return chosen


def beyond_pairs(items) -> list:
    """Return the items that the default run does without."""
    tests: dict[tuple, list] = {}
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("every"):
            world = item.callspec.params.get("world")
            ranks, kind = getattr(world, "mpi_size", 0), getattr(world, "kind", "")
            tests.setdefault((item.nodeid.partition("[")[0], kind, ranks), []).append(item)
    left_out = []
    for (name, _, ranks), found in tests.items():
        if len(found) > MPI_ITEMS if ranks else len(found) >= LEAST:
            chosen = pairs([_row(item) for item in found], seed=crc32(name.encode()))
            kept = set(chosen[:MPI_ITEMS] if ranks else chosen)
            left_out += [item for i, item in enumerate(found) if i not in kept]
    return left_out


def _row(item) -> list[tuple]:
    """Return which values an item has of each `parametrize` and fixture; as they may be no keys: which objects."""
    params, columns = dict(item.callspec.params), []
    for marker in item.iter_markers("parametrize"):
        names = marker.args[0]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        columns.append(tuple(id(params.pop(name)) for name in names if name in params))
    return columns + [(id(params[name]),) for name in sorted(params)]
