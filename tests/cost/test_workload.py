"""How many parts: the smallest number that fits, and the sum where nothing fits."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from spgnn.cost.workload import MAX_PARTS, Workload, graph_bytes, predicted_workload
from spgnn.errors import ResourceError, UsageError
from spgnn.graph import graph_from_coo


def test_prediction_takes_the_smallest_multiple_of_the_ranks_that_fits():
    training = lambda k: 400 / k + 50
    for M in (60, 70, 100, 128, 300, 900):
        found = predicted_workload(1000, 3, M, training)
        fits = lambda k: math.ceil(1500 / k) + math.ceil(training(k)) <= M
        expected = next(k for k in range(3, MAX_PARTS, 3) if fits(k))
        assert found.k == expected and found.T == math.ceil(training(found.k)) and found.fits


@pytest.mark.parametrize("q", [1, 3, 8])
def test_what_does_not_fit_at_any_number_of_parts_is_refused_with_the_sum(q):
    for S, T in ((10**9, 2e7), (10**12, 9e6)):
        text = rf"no parts fit: .* \+ training {T / 1e6:.1f} MB = .*memory of a rank 10\.0 MB; .*memory"
        with pytest.raises(ResourceError, match=text) as refused:
            predicted_workload(S, q, 10**7, lambda k: T)  # noqa: B023
        assert refused.value.exit_code == 4


@pytest.mark.parametrize("changes, message", [
    ({"q": 0}, "ranks = 0; expected an integer of 1 or more"), ({"q": 1.5}, "ranks = 1.5"),
    ({"S": -1}, "S = -1; expected the bytes of the graph"), ({"M": "1GB"}, "M = '1GB'; expected the bytes of a rank"),
    ({"M": float("nan")}, "M = nan"), ({"halo": 0.5}, "halo = 0.5; expected a factor of 1 or more"),
])  # fmt: skip
def test_numbers_that_are_none_are_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        predicted_workload(**{"S": 10, "q": 2, "M": 10, "training_bytes": lambda k: 1} | changes)


def test_a_cut_whose_largest_part_is_too_large_grows_by_the_ratio_to_a_multiple_of_the_ranks():
    workload = Workload(1000, 4, 300, 50, 4)
    assert workload.cut(250).fits and not workload.cut(251).fits
    assert workload.cut(251).grown().k == 8 and workload.cut(1000).grown().k == 16
    with pytest.raises(ResourceError, match="the largest with its halo 0.0 MB"):
        workload.cut(251).check()
    workload.cut(250).check()
    with pytest.raises(ResourceError, match="at most 8192"):
        workload.cut(10**6).grown()


def test_the_line_has_the_numbers_that_were_put_in():
    workload = Workload(2 * 10**9, 4, 9 * 10**8, 6 * 10**8, 7)
    line = str(workload)
    for text in ("7 part(s) on 4 rank(s)", "S = 2,000.0 MB", "M = 900.0 MB", "T = 600.0 MB, "):
        assert text in line
    assert workload.cut(3 * 10**8).to_dict() == {
        "S": 2 * 10**9, "q": 4, "M": 9 * 10**8, "T": 6 * 10**8, "k": 7, "part_mb": 300.0,
    }  # fmt: skip


def test_the_bytes_of_a_graph_are_those_of_its_arrays():
    X = sp.csr_array(np.eye(4, dtype=np.float32))
    graph = graph_from_coo([0, 1], [1, 2], 4, X=X, y=np.zeros(4, np.int64), split=np.zeros(4, np.int8))
    assert graph_bytes(graph) == (5 * 4 + 2 * 8) + sum(a.nbytes for a in (X.data, X.indices, X.indptr)) + 32 + 4
