"""Device tensors move by NCCL and through the host as arrays do: same rows, same sums, same bytes counted.

NCCL is a stand-in for ranks that are threads (fake_cupy.py): what is checked is what dist/device/nccl.py asks of it.
"""

import fake_cupy
import numpy as np
import pytest
import torch
from graphs import random_graph
from worlds import parallel

import spgnn
from spgnn.dist import Communicator, run_threads
from spgnn.dist.device.device_communicator import DeviceCommunicator, StagedTransport, on_device
from spgnn.dist.device.nccl import NcclTransport
from spgnn.errors import CollectiveError, ShapeError
from spgnn.layers import GCN, Stack

NAN = float("nan")


@pytest.fixture(autouse=True)
def cupy(monkeypatch):
    fake_cupy.install(monkeypatch)


def is_tensor(x) -> bool:
    return hasattr(x, "detach")


def by_nccl(comm, limit_s=20.0):
    stream = fake_cupy.HostStream()
    return DeviceCommunicator(comm, NcclTransport(comm, stream.device, lambda: stream, limit_s), is_tensor)


def by_host(comm):
    return DeviceCommunicator(comm, StagedTransport(comm), is_tensor)


WAYS = pytest.mark.parametrize("way", [by_nccl, by_host])


def rows_from(rank: int, size: int) -> list[int]:
    """How many rows a rank sends to each, some none and some to itself."""
    return [(rank * 3 + q * 2) % 4 for q in range(size)]


@parallel([1, 3], mpi=[])
@WAYS
def test_rows_arrive_as_by_arrays_and_count_as_many_bytes(comm, way):
    # An exchange of tensors is held against one of arrays; all that arrives was poisoned.
    device, width = way(comm), 3
    send_rows, recv_rows = (
        rows_from(comm.rank, comm.size),
        [rows_from(q, comm.size)[comm.rank] for q in range(comm.size)],
    )
    send = torch.arange(sum(send_rows) * width, dtype=torch.float32).reshape(-1 if width else sum(send_rows), width)
    send += 1000 * comm.rank
    expected, recv = np.empty((sum(recv_rows), width), np.float32), torch.full((sum(recv_rows), width), NAN)
    comm.all_to_all(send.numpy(), send_rows, expected, recv_rows)
    counted = comm.traffic.sent_bytes().copy()
    request = device.start_all_to_all(send, send_rows, recv, recv_rows)
    assert recv.isnan().all()  # nothing has come before it is waited for
    request.wait()
    request.wait()
    assert request.test() and request.ended_s is not None
    np.testing.assert_array_equal(recv.numpy(), expected)
    assert (comm.traffic.sent_bytes() == 2 * counted).all()


@parallel([3], mpi=[])
@WAYS
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_sums_and_maxima_are_over_all_ranks(comm, way, dtype):
    device, x = way(comm), torch.arange(5).to(dtype) + comm.rank
    device.all_reduce(x)
    assert x.tolist() == [3 * i + 3 for i in range(5)]
    device.all_reduce(y := torch.tensor([comm.rank]).to(dtype), "max")
    assert y.item() == 2
    assert comm.traffic.collective_bytes("all_reduce") == 6 * dtype.itemsize


@parallel([3], mpi=[])
@WAYS
def test_a_broadcast_reaches_all_and_arrays_go_as_before(comm, way):
    device, x = way(comm), torch.full((4, 2), float(comm.rank))
    assert isinstance(device, Communicator)
    device.broadcast(x, root=2)
    assert (x == 2).all()
    assert device.all_gather(torch.tensor([comm.rank])).tolist() == [0, 1, 2]
    assert device.all_reduce(np.array([comm.rank]))[0] == 3
    assert device.all_gather_json(comm.rank) == [0, 1, 2]
    device.barrier()


@parallel([4], mpi=[])
@WAYS
def test_split_ranks_exchange_among_themselves_and_count_in_the_whole(comm, way):
    device = way(comm)
    part = device.split(comm.rank % 2, -comm.rank)
    assert (part.size, part.rank) == (2, 1 - comm.rank // 2)
    recv = torch.full((2,), NAN)
    part.all_to_all(torch.tensor([comm.rank, comm.rank]).float(), [1, 1], recv, [1, 1])
    assert sorted(recv.tolist()) == [comm.rank % 2, comm.rank % 2 + 2]
    assert comm.traffic.sent_bytes().sum() == 4 and comm.traffic.sent_bytes()[(comm.rank + 2) % 4] == 4


def losses_and_bytes(comm):
    """Losses and bytes of a training on a 2 x 2 grid."""
    graph = random_graph(n=60, edges=400)
    dgraph = spgnn.distribute(graph, comm, method="random", dtype=torch.float64, replication=2)
    history = spgnn.train(Stack(GCN(6, 8, act="relu"), GCN(8, 3)), dgraph, epochs=3)
    return [r["loss"] for r in history.records], history.bytes_sent


@pytest.mark.slow
def test_a_training_by_nccl_gives_the_losses_and_bytes_of_the_cpu():
    expected, got = (run_threads(4, body)[0] for body in (losses_and_bytes, lambda c: losses_and_bytes(by_nccl(c))))
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-12)
    assert got[1] == expected[1]


@parallel([2], mpi=[])
def test_a_rank_that_stays_away_is_found_by_the_time_limit(comm):
    device = by_nccl(comm, limit_s=0.2)
    if comm.rank == 0:
        with pytest.raises(
            CollectiveError, match=r"rank 0, phase epoch 3: all_reduce \(sums\) by NCCL has not ended for 0.2 s"
        ):
            device.phase = "epoch 3"
            with comm.traffic.label("sums"):
                device.all_reduce(torch.ones(2))
        with pytest.raises(CollectiveError, match=r"NCCL failed in all_reduce \(sums\): aborted"):
            device.all_reduce(torch.ones(2))


@parallel([2], mpi=[])
def test_what_fails_on_the_device_is_told_at_once(comm, monkeypatch):
    device = by_nccl(comm)
    device.all_reduce(torch.ones(2))
    comm.barrier()
    monkeypatch.setattr(fake_cupy, "FAILURE", [700])
    with pytest.raises(CollectiveError, match=f"rank {comm.rank}, phase .*: device 1 failed: error 700"):
        device.all_reduce(torch.ones(2))


@parallel([2], mpi=[])
def test_counts_that_do_not_fit_are_refused_before_anything_is_sent(comm):
    device = by_nccl(comm)
    with pytest.raises(ShapeError, match="add up to 3"):
        device.start_all_to_all(torch.ones(2, 1), [1, 2], torch.ones(2, 1), [1, 1])
    with pytest.raises(CollectiveError, match="contiguous"):
        device.all_reduce(torch.ones(4, 4).t()[:2])


def test_what_lies_on_the_cpu_is_no_device_tensor():
    assert not on_device(torch.ones(2)) and not on_device(np.ones(2)) and on_device(torch.ones(2, device="meta"))
