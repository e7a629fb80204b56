"""The default run of a test has each pair of values of its parameters, in few items."""

from collections import Counter
from itertools import combinations, product

import pytest
from pairs import pairs

GRIDS = [product("ab", "cd"), product(range(8), "abc", range(4)), product(*["abc"] * 4)]


def pairs_in(rows):
    return {pair for row in rows for pair in combinations(enumerate(row), 2)}


@pytest.mark.parametrize("grid, most", list(zip(GRIDS, (4, 32, 12))))
def test_every_pair_is_in_a_few_rows(grid, most):
    rows = list(grid)
    chosen = [rows[i] for i in pairs(rows)]
    assert pairs_in(chosen) == pairs_in(rows) and len(chosen) <= most


def test_each_value_of_a_long_list_is_in_two_rows():
    rows = list(product(range(21), "abc", range(4)))
    chosen = [rows[i] for i in pairs(rows)]
    assert len(chosen) == 42 and set(Counter(row[0] for row in chosen).values()) == {2}
    assert pairs_in(row[1:] for row in chosen) == pairs_in(row[1:] for row in rows)


def test_a_table_of_examples_stays_whole():
    assert len(pairs([(i,) for i in range(20)])) == 20


def test_pairs_that_no_row_has_are_not_asked_for():
    rows = [row for row in product("abc", "abc", "abc") if row[0] <= row[1]]
    assert pairs_in(rows[i] for i in pairs(rows)) == pairs_in(rows)


@pytest.mark.parametrize("b", "xyz")
@pytest.mark.parametrize("a", "uvw")
@pytest.mark.parametrize("c", "rst")
def test_this_default_run_is_thinned_out_and_full_has_the_rest(request, a, b, c):
    of_this = [item for item in request.session.items if item.originalname == request.node.originalname]
    if any(item.get_closest_marker("full") for item in of_this):
        pytest.skip("a run of everything")
    assert len(of_this) <= 12
