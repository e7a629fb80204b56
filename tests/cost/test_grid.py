"""ProcessGrid: which rank holds which block row and multiplies which blocks."""

import numpy as np
import pytest

from spgnn import ProcessGrid
from spgnn.cost.grid import slices
from spgnn.errors import UsageError


@pytest.mark.parametrize("P, c", [(1, 1), (6, 1), (4, 2), (8, 2), (12, 2), (9, 3), (16, 4), (np.int64(8), np.int32(2))])
def test_each_block_row_is_on_c_ranks_that_share_its_blocks_out(P, c):
    grid = ProcessGrid(P, c)
    assert (grid.rows, grid.n_stages) == (P // c, P // c**2)
    for i in range(grid.rows):
        ranks = [r for r in range(P) if grid.row_of(r) == i]
        stages = [q for r in ranks for q in grid.stages(grid.column_of_rank(r))]
        assert len(ranks) == c and stages == list(range(grid.rows))
        assert all(grid.column_of(q) == j for j in range(c) for q in grid.stages(j))


@pytest.mark.parametrize("n", [0, 1, 2, 7, 100])
def test_slices_of_a_process_row_are_nearly_equal_and_all_of_it(n):
    bounds = slices(n, 3)
    assert bounds[0] == 0 and bounds[-1] == n and np.ptp(np.diff(bounds)) <= 1


@pytest.mark.parametrize("P, c, said", [
    (4, 3, "replication 3 does not fit 4 rank.*those that work: 1, 2"), (8, 4, "those that work: 1, 2"), (2, 2, "those that work: 1"), (4, 0, "replication 0"),
    (4, 2.0, "replication = 2.0; expected an integer"), (4, True, "replication = True"), (4, "2", "replication = '2'"), (0, 1, "ranks = 0; expected an integer of 1 or more"), (4.0, 1, "ranks = 4.0"),
])  # fmt: skip
def test_what_makes_no_grid_is_refused_with_what_would(P, c, said):
    with pytest.raises(UsageError, match=said):
        ProcessGrid(P, c)
