"""TimedOperations compute what Operations compute, and count flops, bytes and messages exactly."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphs import random_graph
from worlds import parallel

from spgnn.distgraph import distribute
from spgnn.spmm.kernels.csr import LocalCSR
from spgnn.spmm.operator.features import gemm
from spgnn.spmm.operator.timing import OWN, Operations, TimedOperations
from spgnn.timeline.recorder import EXCHANGE, SET_UP, Recorder


def totals(recorder):
    return {phase: total for (_, phase), total in recorder.totals.items()}


def public(cls):
    return {name for name in dir(cls) if not name.startswith("_")}


def test_every_operation_is_timed():
    assert public(Operations) <= public(TimedOperations)
    assert all(getattr(TimedOperations, name) is not getattr(Operations, name) for name in public(Operations))


@parallel([2, 3], mpi=[4])
@pytest.mark.parametrize("scheme", ["columns", "broadcast", "cover"])
def test_products_are_the_same_and_counts_are_exact(comm, scheme):
    A = distribute(
        random_graph(use="undirected", weighted=True), comm, scheme=scheme, keep=False, dtype=torch.float64
    ).A
    H = torch.from_numpy(np.random.default_rng(comm.rank).standard_normal((A.m, 5)))
    plain, plain_adjoint = A.at(1).apply(H), A.at(1).adjoint(H)
    recorder = Recorder()
    A.layout.use(TimedOperations(recorder, comm.traffic))
    comm.traffic.reset()
    A_1 = A.at(1)
    torch.testing.assert_close(A_1.apply(H), plain, rtol=0, atol=0)
    torch.testing.assert_close(A_1.adjoint(H), plain_adjoint, rtol=0, atol=0)
    found = totals(recorder)
    assert found["own SpMM"].flops == 2 * 2 * A.A_oo.nnz * 5
    assert found["ghost SpMM"].flops == 2 * 2 * sum(stage.A.nnz for stage in A.stages) * 5
    assert found[EXCHANGE].bytes == comm.traffic.sent_bytes("all_to_all").sum()
    sent = [comm.traffic.sent_bytes(label=f"layer 1 {way}") for way in ("forward", "backward")]
    assert found[EXCHANGE].messages == sum(np.count_nonzero(bytes_P) for bytes_P in sent)
    assert {span.label for span in recorder.spans if span.phase == EXCHANGE} == {"layer 1 forward", "layer 1 backward"}
    assert {span.label for span in recorder.spans if span.phase == "own SpMM"} == {
        "layer 1 forward",
        "layer 1 backward",
    }


@parallel([4], mpi=[4])
def test_the_sums_of_a_process_row_are_counted(comm):
    A = distribute(random_graph(use="undirected"), comm, scheme="columns", replication=2, keep=False).A
    recorder = Recorder()
    A.layout.use(TimedOperations(recorder, comm.traffic))
    comm.traffic.reset()
    A.at(1).apply(torch.ones(A.m, 5))
    summed = totals(recorder)["sum over process row"]
    assert summed.calls == 2
    assert summed.bytes == comm.traffic.sent_bytes(label="layer 1 forward sum").sum() > 0


@parallel([2], mpi=[])
def test_an_exchange_is_in_flight_until_it_arrives_not_until_it_is_waited_for(comm):
    recorder = Recorder()
    ops = TimedOperations(recorder, comm.traffic)
    two = np.full(comm.size, 2)
    rows = torch.zeros(4, 3)
    request = ops.start(comm, rows, two, torch.empty(4, 3), two)
    time.sleep(0.1)
    ops.wait(request)
    found = totals(recorder)
    assert found[EXCHANGE].seconds < 0.09
    assert (found[EXCHANGE].bytes, found[EXCHANGE].messages) == (2 * 3 * 4, 1)  # what a rank sends itself is not sent


def test_flops_of_a_gemm_are_2_n_f_c():
    recorder = Recorder()
    ops = TimedOperations(recorder, None)
    ops.traffic = type("Traffic", (), {"open_label": lambda self: ""})()
    A = SimpleNamespace(ops=ops, threads=1)
    assert gemm(A, torch.ones(4, 3), torch.ones(3, 2), torch.empty(4, 2), torch.ones(2)).tolist() == [[4, 4]] * 4
    assert recorder.totals[SET_UP, "GEMM"].flops == 2 * 4 * 3 * 2


def test_an_operation_that_fails_leaves_no_span_open():
    recorder = Recorder()
    ops = TimedOperations(recorder, type("Traffic", (), {"open_label": lambda self: ""})())
    with pytest.raises(Exception, match="expected"):
        with ops.span(OWN):
            LocalCSR(sp.csr_array(np.eye(3, dtype=np.float32))).apply(torch.ones(4, 2), torch.ones(4, 2))
    recorder.phase("epoch 1")
    assert recorder.epochs == 1
