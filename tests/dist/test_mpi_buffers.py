"""What MpiCommunicator hands to MPI: the addresses of its buffers, and how long they live."""

import gc
import weakref

import numpy as np
import pytest
from worlds import parallel

from spgnn.errors import CollectiveError


class Recorded:
    """An mpi4py communicator that asserts, at each collective with two buffers, that these begin at two addresses."""

    def __init__(self, comm):
        self.comm, self.calls = comm, 0

    def __getattr__(self, name):
        from mpi4py import MPI

        function = getattr(self.comm, name)
        if name not in ("Ialltoallv", "Iallgatherv"):
            return function

        def call(send, recv):
            assert MPI.Get_address(send[0]) != MPI.Get_address(recv[0]), name
            self.calls += 1
            return function(send, recv)

        return call


@pytest.mark.slow
@parallel([], mpi=[3])
def test_the_two_buffers_of_a_collective_never_begin_at_one_address(comm):
    torch = pytest.importorskip("torch")
    handles, nothing = comm._handles, [0] * comm.size
    handles.data = recorded = Recorded(data := handles.data)
    try:
        rows = np.zeros((8, 3))
        comm.all_to_all(rows[:0], nothing, rows[:0], nothing)
        comm.all_to_all(torch.empty(0), nothing, torch.empty(0), nothing)  # both at address 0
        comm.start_all_to_all(rows[:0], nothing, rows[8:], nothing).wait()
        comm.all_to_all(np.empty((4 * comm.size, 0)), [4] * comm.size, np.empty((4 * comm.size, 0)), [4] * comm.size)
        is_first, others = comm.rank == 0, [0, *[4] * (comm.size - 1)]
        if is_first:
            comm.all_to_all(rows[: sum(others)], others, rows[:0], nothing)
        else:
            comm.all_to_all(rows[:0], nothing, rows[:4], [4, *nothing[1:]])
        comm.all_gather(rows[:0] if is_first else rows)
        comm.all_gather(torch.empty(0, 2))
        at, no_rows = rows.ctypes.data, np.array(nothing)
        comm.start_addresses(at, no_rows, at, no_rows, 24).wait()
        comm.start_addresses(0, no_rows, 0, no_rows, 24).wait()
        assert recorded.calls == 8
    finally:
        handles.data = data


@parallel([], mpi=[3])
def test_a_started_collective_that_differs_is_held_with_its_buffers(comm):
    request = comm.start_all_reduce(np.ones(3), "max" if comm.rank == 1 else "sum")
    with pytest.raises(CollectiveError, match="op max"):
        request.wait()
    held = weakref.ref(request)
    del request
    gc.collect()
    assert held() is not None  # MPI may still write to its buffer
    comm.barrier()
