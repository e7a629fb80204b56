"""How many parts: the paper's arithmetic, the smallest that fits by prediction, and the sum where nothing fits."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from spgnn.cost.workload import MAX_PARTS, Workload, given_workload, graph_bytes, predicted_workload
from spgnn.errors import ResourceError, UsageError
from spgnn.graph import graph_from_coo


@pytest.mark.parametrize(
    "S, q, M, T, k",
    [
        (8, 4, 3, 1, 4),  # S = q (M - T): a part per rank
        (9, 4, 3, 1, 5),  # a byte more: ceil(9 / 2)
        (10, 4, 3, 1, 5),
        (100, 2, 30, "paper", 10),  # T = 20
        (101, 2, 30, "paper", 11),
        (0, 3, 10, 0, 3),
    ],
)
def test_the_number_of_parts_is_the_papers(S, q, M, T, k):
    workload = given_workload(S, q, M, T)
    assert (workload.k, workload.q, workload.S, workload.M) == (k, q, S, M)
    assert workload.T == (20 if T == "paper" else T) and workload.fits
    assert k == q or not Workload(S, q, M, workload.T, k - 1).fits


def test_prediction_takes_the_smallest_multiple_of_the_ranks_that_fits():
    training = lambda k: 400 / k + 50
    for M in (60, 70, 100, 128, 300, 900):
        found = predicted_workload(1000, 3, M, training)
        fits = lambda k: math.ceil(1500 / k) + math.ceil(training(k)) <= M
        expected = next(k for k in range(3, MAX_PARTS, 3) if fits(k))
        assert (
            found.k == expected and found.T == math.ceil(training(found.k)) and found.fits and found.how == "predicted"
        )


@pytest.mark.parametrize("q", [1, 3, 8])
def test_what_does_not_fit_at_any_number_of_parts_is_refused_with_the_sum(q):
    with pytest.raises(
        ResourceError, match=r"no parts fit.*T = 20\.0 MB of the 10\.0 MB of a rank.*--memory"
    ) as refused:
        given_workload(10**9, q, 10**7, 2 * 10**7)
    assert refused.value.exit_code == 4
    with pytest.raises(ResourceError, match=r"is 1000000 parts; at most 8192"):
        given_workload(10**12, q, 10**7, 9 * 10**6)
    with pytest.raises(
        ResourceError, match=r"parts do not fit: .* \+ training 20\.0 MB = 2.*memory of a rank 10\.0 MB"
    ):
        predicted_workload(10**9, q, 10**7, lambda k: 2e7)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"q": 0}, "ranks = 0; expected an integer of 1 or more"),
        ({"q": 1.5}, "ranks = 1.5"),
        ({"S": -1}, "S = -1; expected the bytes of the graph"),
        ({"M": "1GB"}, "M = '1GB'; expected the bytes of a rank"),
        ({"T": "most"}, "working memory T = 'most'; expected a number of bytes of 0 or more, or 'paper'"),
        ({"T": float("nan")}, "working memory T = nan"),
    ],
)
def test_numbers_that_are_none_are_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        given_workload(**{"S": 10, "q": 2, "M": 10, "T": 1} | changes)


def test_a_cut_whose_largest_part_is_too_large_grows_by_the_ratio_to_a_multiple_of_the_ranks():
    workload = given_workload(1000, 4, 300, 50)
    assert workload.k == 4 and workload.cut(250).fits and not workload.cut(251).fits
    assert workload.cut(251).grown().k == 8 and workload.cut(1000).grown().k == 16
    with pytest.raises(ResourceError, match="the largest with its halo 0.0 MB"):
        workload.cut(251).check()
    workload.cut(250).check()
    with pytest.raises(ResourceError, match="at most 8192"):
        workload.cut(10**6).grown()


def test_the_line_has_the_numbers_that_were_put_in():
    workload = given_workload(2 * 10**9, 4, 9 * 10**8, "paper")
    line = str(workload)
    for text in ("7 part(s) on 4 rank(s)", "S = 2,000.0 MB", "M = 900.0 MB", "T = 600.0 MB (given)"):
        assert text in line
    assert workload.cut(3 * 10**8).to_dict() == {
        "S": 2 * 10**9, "q": 4, "M": 9 * 10**8, "T": 6 * 10**8, "k": 7, "how": "given", "part_mb": 300.0,
    }  # fmt: skip


def test_the_bytes_of_a_graph_are_those_of_its_arrays():
    X = sp.csr_array(np.eye(4, dtype=np.float32))
    graph = graph_from_coo([0, 1], [1, 2], 4, X=X, y=np.zeros(4, np.int64), split=np.zeros(4, np.int8))
    assert graph_bytes(graph) == (5 * 4 + 2 * 8) + sum(a.nbytes for a in (X.data, X.indices, X.indptr)) + 32 + 4
