"""A training on the CUDA kernels, run on the CPU from their sources, equals the training on the C++ kernels."""

import numpy as np
import pytest
import torch
from emulated_cuda import emulated_kernels
from graphs import random_graph

import spgnn
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.dist.device.device_communicator import DeviceCommunicator
from spgnn.dist.device.staged import StagedTransport
from spgnn.layers import GCN, Stack
from spgnn.spmm.kernels import backend

pytestmark = pytest.mark.slow

# (what is trained, relative difference of losses and logits): rounding aside, equal.
CASES = {
    "float64": (dict(), 1e-11),
    "dropout": (dict(dropout=0.4), 1e-11),
    "sparse": (dict(sparse=True), 1e-11),
    "sparse dropout": (dict(sparse=True, dropout=0.4), 1e-11),
    "norm, residual": (dict(norm="layer", residual=True), 1e-11),
    "float32": (dict(dtype=torch.float32), 1e-5),
    "bfloat16": (dict(dtype=torch.bfloat16), 2e-2),
    "pruned": (dict(prune="always"), 1e-11),
    "wires": (dict(dtype=torch.float32, wire="bfloat16", wire_gradients="int8"), 1e-4),
}


def staged(comm):
    """The communicator as a device's: tensors go by the transport, arrays as they are."""
    return DeviceCommunicator(comm, StagedTransport(comm), is_device=lambda x: hasattr(x, "detach"))


def train(comm, *, dtype=torch.float64, sparse=False, dropout=0.0, norm=None, residual=False, prune="auto", **options):
    graph = random_graph(n=60, edges=400, f=9, sparse=sparse)
    dgraph = spgnn.distribute(graph, comm, method="random", dtype=dtype, keep=dropout == 0, **options)
    model = Stack(
        GCN(9, 9, act="relu", norm=norm, residual=residual), GCN(9, 8, act="relu"), GCN(8, 3), dropout=dropout
    )
    history = spgnn.train(model, dgraph, epochs=4, prune=prune, lr=0.05)
    with torch.no_grad():
        logits = dgraph.collect(model.eval()(dgraph.A, dgraph.X).double().numpy())
    return [r["loss"] for r in history.records], logits, history.bytes_sent, history.bytes_predicted


@pytest.mark.parametrize("case", CASES)
def test_one_rank_trains_as_on_the_cpu(case, monkeypatch):
    options, tolerance = CASES[case]
    expected = train(SelfCommunicator(), **options)
    kernels = emulated_kernels()
    monkeypatch.setattr(backend, "HOST", kernels)
    got = train(staged(SelfCommunicator()), **options)
    assert {"spmm_items", "mask_sum", "softmax_xent"} <= {name.partition("<")[0] for name in kernels.launcher.names}
    np.testing.assert_allclose(got[0], expected[0], rtol=tolerance)
    np.testing.assert_allclose(got[1], expected[1], rtol=10 * tolerance, atol=10 * tolerance)


@pytest.mark.parametrize(
    "case, ranks, options",
    [
        ("float64", 3, {"scheme": "cover"}),
        ("dropout", 4, {"scheme": "cover", "replication": 2}),
        ("pruned", 2, {"scheme": "cover"}),
        ("wires", 2, {"scheme": "columns"}),
        ("bfloat16", 2, {"scheme": "cover"}),
    ],
)
def test_ranks_that_stage_through_the_host_train_as_on_the_cpu(case, ranks, options, monkeypatch):
    case_options, tolerance = CASES[case]
    options = options | case_options
    expected = run_threads(ranks, lambda comm: train(comm, **options))[0]
    monkeypatch.setattr(backend, "HOST", emulated_kernels())
    got = run_threads(ranks, lambda comm: train(staged(comm), **options), timeout=300)[0]
    np.testing.assert_allclose(got[0], expected[0], rtol=tolerance)
    np.testing.assert_allclose(got[1], expected[1], rtol=10 * tolerance, atol=10 * tolerance)
    assert got[2] == expected[2] == got[3]
