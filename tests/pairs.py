"""The default run has each pair of values of a test's parameters; the items beyond are marked `full`.

Three parameters of 21, 3 and 4 values are 252 items; every pair of values is in 84 of them. A fault that takes three
values at once to show is found by `runs/test -m full`, which runs the rest. A test whose parameters do meet all at once
is marked `every`. On MPI ranks, which differ from threads in what tests/dist runs, a test has MPI_ITEMS items per size.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from random import Random

import pytest

LEAST = 12  # items of a test that are thinned out
MPI_ITEMS = 2


def full_beyond(count: int, values: Iterable) -> list:
    """Return parameters of which the default run has the first ones; the others are marked `full`."""
    values = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*value, marks=pytest.mark.full if i >= count else ()) for i, value in enumerate(values)]


def pairs(rows: Sequence[Sequence[Hashable]], seed: int = 0) -> list[int]:
    """Return the numbers of rows that have together every pair of values of two columns that any row has.

    Greedy: the next row is one with the most pairs that are new, drawn among equals from the seed.

    Args: rows  a row for each item, a column for each parameter.
    """
    pairs_of = [set(combinations(enumerate(row), 2)) for row in rows]
    missing, order, chosen = set().union(*pairs_of), list(range(len(rows))), []
    Random(seed).shuffle(order)
    while missing:
        chosen.append(max(order, key=lambda i: len(pairs_of[i] & missing)))
        missing -= pairs_of[chosen[-1]]
    return chosen


def beyond_pairs(items) -> list:
    """Return the items that the default run does without."""
    tests: dict[tuple, list] = {}
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("every"):
            ranks = getattr(item.callspec.params.get("world"), "mpi_size", 0)
            tests.setdefault((item.nodeid.partition("[")[0], ranks), []).append(item)
    left_out = []
    for (_, ranks), found in tests.items():
        if len(found) > MPI_ITEMS if ranks else len(found) >= LEAST and len(found[0].callspec.params) > 2:
            chosen = pairs([_row(item) for item in found])
            kept = set(chosen[:MPI_ITEMS] if ranks else chosen)
            left_out += [item for i, item in enumerate(found) if i not in kept]
    return left_out


def _row(item) -> list[int]:
    """Return which values an item has; values of parameters may be no keys of a set, and are the same objects."""
    return [id(value) for _, value in sorted(item.callspec.params.items(), key=lambda entry: entry[0])]
