"""ObservedCommunicator: the same communicator, and observers hear of every wait."""

import time

import numpy as np
import pytest
from worlds import parallel

from spgnn.dist import Communicator, Request
from spgnn.dist.job.watchdog import ObservedCommunicator
from spgnn.errors import CollectiveError


class Ears:
    def __init__(self):
        self.heard, self.open = [], []

    def phase(self, text):
        self.heard.append(text)

    def enter(self, kind, buffer=None):
        self.heard.append(kind)
        self.open.append(kind)

    def leave(self, kind):
        assert self.open.pop() == kind


@parallel([1, 2, 3], mpi=[2])
def test_every_collective_is_heard_and_does_what_it_does(comm):
    ears = Ears()
    seen = ObservedCommunicator(comm, ears)
    assert isinstance(seen, Communicator)
    seen.phase = "epoch 1"
    assert comm.phase == "epoch 1"
    P, ones = comm.size, np.ones(comm.size, np.int64)
    assert seen.all_reduce(np.ones(2))[0] == P
    assert len(seen.all_gather(np.zeros(1))) == P
    assert seen.all_gather_json(comm.rank) == list(range(P))
    assert seen.broadcast(np.full(1, comm.rank), root=P - 1)[0] == P - 1
    assert seen.all_to_all(np.full(P, comm.rank), ones, np.empty(P, np.int64), ones).tolist() == list(range(P))
    seen.barrier()
    part = seen.split(comm.rank % 2)
    part.barrier()
    received = np.empty(P, np.int64)
    request = seen.start_all_to_all(np.full(P, comm.rank), ones, received, ones)
    assert isinstance(request, Request)
    request.wait()
    assert received.tolist() == list(range(P))
    kinds = "all_reduce all_gather all_gather_json broadcast all_to_all barrier split barrier wait".split()
    assert ears.heard == ["epoch 1", *kinds]
    assert ears.open == []
    assert seen.traffic is comm.traffic


@parallel([2], mpi=[2])
def test_a_request_knows_when_it_ended_not_when_it_was_waited_for(comm):
    ones = np.ones(comm.size, np.int64)
    start = time.monotonic()
    request = comm.start_all_to_all(np.zeros((2, 4)), ones, np.empty((2, 4)), ones)
    time.sleep(0.2)
    request.wait()
    assert start <= request.ended_s < start + 0.15


@parallel([2], mpi=[])
def test_observers_hear_the_end_of_a_collective_that_raises(comm):
    ears = Ears()
    seen = ObservedCommunicator(comm, ears)
    with pytest.raises(CollectiveError):
        seen.all_reduce(np.ones(2 + comm.rank))
    assert ears.open == []
