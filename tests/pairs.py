"""The default run has each pair of values of a test's parameters; the items beyond are marked `full`.

Three parameters of 21, 3 and 4 values are 252 items; every pair of values is in 84 of them. A fault that takes three
values at once to show is found by `runs/test -m full`, which runs the rest. A test whose parameters do meet all at once
is marked `every`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations
from random import Random

LEAST = 12  # items of a test that are thinned out


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
    return sorted(chosen)


def beyond_pairs(items) -> list:
    """Return the items of tests of three and more parameters that a covering array of their pairs does not need."""
    tests: dict[str, list] = {}
    for item in items:
        if hasattr(item, "callspec") and len(item.callspec.params) > 2 and not item.get_closest_marker("every"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = []
    for found in tests.values():
        if len(found) >= LEAST:
            chosen = set(pairs([_row(item) for item in found]))
            left_out += [item for i, item in enumerate(found) if i not in chosen]
    return left_out


def _row(item) -> list[int]:
    """Return which values an item has; values of parameters may be no keys of a set, and are the same objects."""
    return [id(value) for _, value in sorted(item.callspec.params.items(), key=lambda entry: entry[0])]
