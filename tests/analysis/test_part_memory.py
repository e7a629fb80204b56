"""The memory of training a part: falls with the parts, and is that of a rank alone for one part."""

import pytest

from spgnn.analysis.epoch import gcn_of
from spgnn.analysis.training_memory import part_memory
from spgnn.cost.workload import predicted_workload
from spgnn.errors import ResourceError
from spgnn.spmm.dry.dry_operator import Setting

PROCESS = 250e6
GRAPH = {"n": 10**6, "own_nnz": 2 * 10**7}


@pytest.mark.parametrize("x_nnz", [None, 10**7], ids=["dense", "sparse"])
def test_a_part_takes_less_the_more_parts_there_are_and_never_less_than_its_process(x_nnz):
    graph = GRAPH | ({"x_nnz": x_nnz} if x_nnz else {})
    setting = Setting(features=128, is_sparse=x_nnz is not None, has_ghosts=x_nnz is not None)
    taken = [
        part_memory(gcn_of((128, 64, 40)), setting, graph, k, process_bytes=PROCESS).peak for k in (1, 2, 4, 64, 4096)
    ]
    assert all(more > less for more, less in zip(taken, taken[1:]))
    assert PROCESS < taken[-1] < 1.25 * PROCESS
    rows = [size - taken[-1] for size in taken]
    assert rows[0] / rows[1] == pytest.approx(2, rel=0.02) and rows[0] / rows[2] == pytest.approx(4, rel=0.02)


def test_a_halo_takes_as_much_as_so_many_more_rows():
    model, setting = gcn_of((128, 64, 40)), Setting(features=128)
    taken = lambda k, halo: part_memory(model, setting, GRAPH, k, halo=halo, process_bytes=PROCESS).peak
    assert taken(8, 2.0) == pytest.approx(taken(4, 1.0), rel=1e-6)
    assert taken(1, 1.5) == taken(1, 1.0)  # all rows are own ones


def test_the_smallest_number_of_parts_follows_from_it():
    model, setting = gcn_of((128, 64, 40)), Setting(features=128)
    T = lambda k: part_memory(model, setting, GRAPH, k, process_bytes=PROCESS).peak
    S = 10**6 * 128 * 4 + 2 * 10**7 * 8
    workload = predicted_workload(S, 2, 10**9, T)
    assert workload.k % 2 == 0 and 1.5 * S / workload.k + T(workload.k) <= 10**9
    assert 1.5 * S / (workload.k - 2) + T(workload.k - 2) > 10**9
    with pytest.raises(ResourceError, match="parts do not fit"):
        predicted_workload(S, 2, 10**8, T)
