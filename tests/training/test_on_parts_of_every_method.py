"""Parts of every partitioner train the model that one process trains."""

import numpy as np
import pytest
import torch

from spgnn import distribute, load_graph, train
from spgnn.config.names import PARTITIONERS
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.layers import GCN, Stack

LIMITS = {"float32": 1e-5, "float64": 1e-10}
BUILT_IN = sorted(PARTITIONERS)
GRAPH = "sbm:n=200,classes=4,features=8,seed=1"


def curve(comm, dtype, method, **options) -> tuple[list[float], float, int, int]:
    dgraph = distribute(load_graph(GRAPH), comm, method=method, dtype=getattr(torch, dtype), **options)
    history = train(Stack(GCN(8, 16, act="relu"), GCN(16, 4), dropout=0.3), dgraph, epochs=6, seed=2)
    return [r["loss"] for r in history.records], history.test, history.bytes_sent, history.bytes_predicted


@pytest.fixture(scope="module")
def alone():
    return {dtype: curve(SelfCommunicator(), dtype, "block") for dtype in LIMITS}


@pytest.mark.parametrize("dtype, scheme", [("float32", "cover"), ("float64", "columns")])
@pytest.mark.parametrize("method", BUILT_IN)
def test_the_curve_is_that_of_one_process_and_the_bytes_are_those_predicted(alone, method, dtype, scheme):
    for losses, test, sent, predicted in run_threads(4, lambda comm: curve(comm, dtype, method, scheme=scheme)):
        np.testing.assert_allclose(losses, alone[dtype][0], rtol=LIMITS[dtype])
        assert test == alone[dtype][1] and sent == predicted > 0


def test_every_method_of_the_issue_is_among_them():
    assert {
        "block",
        "random",
        "metis",
        "volume",
        "entropy",
        "spring",
        "spring+",
        "dbh",
        "greedy",
        "hdrf",
        "2psl",
    } <= set(BUILT_IN)
