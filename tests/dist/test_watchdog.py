"""The watchdog ends a job in which nothing moves with code 70, and says who holds it up; what it observes; its thread."""

import _thread
import re
import threading
import time

import numpy as np
import pytest
from worlds import launch_text, parallel

from spgnn.dist import Communicator, Request, SelfCommunicator, run_threads
from spgnn.dist.job.background import BackgroundThread
from spgnn.dist.job.watchdog import GRACE_S, ObservedCommunicator, Watchdog, watched
from spgnn.errors import CollectiveError, ResourceError

PROGRAM = """
import os, signal, sys, time
import numpy as np
import spgnn
from spgnn.dist.job.watchdog import watched

how, limit = sys.argv[1], float(sys.argv[2])
with spgnn.world() as comm, watched(comm, limit) as comm:
    ones = np.ones(comm.size, np.int64)
    for epoch in range(1, 12):
        comm.phase = f"epoch {epoch}"
        if epoch == 7 and comm.rank == 1:
            if how == "stop": os.kill(os.getpid(), signal.SIGSTOP)
            if how == "sleep": time.sleep(60)
        if how == "stop":
            comm.start_all_to_all(np.zeros((comm.size, 3)), ones, np.empty((comm.size, 3)), ones).wait()
        comm.all_reduce(np.zeros(100, np.float32))
        time.sleep(0.1)
print("end", flush=True)
"""


class Wire:
    """Lines between watchdogs of one process; a rank in `stopped` neither looks nor answers."""

    def __init__(self, size):
        self.boxes = [[] for _ in range(size)]
        self.lines = [self.Line(self, rank) for rank in range(size)]

    class Line:
        def __init__(self, wire, rank):
            self.wire, self.rank = wire, rank

        def send(self, rank, message):
            self.wire.boxes[rank].append(message)

        def receive(self):
            come, self.wire.boxes[self.rank] = self.wire.boxes[self.rank], []
            return come


def dogs_of(size, limit_s=10.0):
    wire = Wire(size)
    return [Watchdog(r, range(size), wire.lines[r], limit_s) for r in range(size)]


def look(dogs, seconds, stopped=(), do=lambda at: None):
    """Let all dogs look every half second; return (rank, error) for all errors in their order."""
    ended = []
    for at in np.arange(0.5, seconds + 0.1, 0.5):
        do(at)
        for dog in dogs:
            if dog.rank not in stopped and (error := dog.look(0.5)):
                ended.append((dog.rank, str(error)))
    return ended


def test_a_stopped_rank_is_named_with_what_it_did_last():
    dogs = dogs_of(3)
    for dog in dogs:
        dog.moves.phase("epoch 7")
        dog.moves.enter("all_reduce", np.zeros(4, np.float32))
        if dog.rank == 1:
            dog.moves.leave("all_reduce")
            dog.moves.phase("epoch 8")
    look(dogs, 3)
    ended = look(dogs, 10 + 3 * GRACE_S, stopped=[1])
    rank, message = ended[0]
    assert rank == 0  # one rank speaks
    assert re.search(
        r"nothing has moved for 10 s: rank 1 gives no sign of life .*; \d+ s ago it was .*phase epoch 8", message
    )
    assert "ranks 0, 2 wait in all_reduce(float32, shape 4), phase epoch 7" in message


def test_a_rank_that_computes_too_long_is_named_with_its_place():
    dogs = dogs_of(3)
    for dog in dogs:
        dog.moves.phase("epoch 7")
        if dog.rank != 2:
            dog.moves.enter("all_reduce", np.zeros(4))
    ended = look(dogs, 20)
    assert re.search(
        r"rank 2 is computing or reading at \w+.py:\d+ \(\w+\), phase epoch 7; ranks 0, 1 wait in all_reduce",
        ended[0][1],
    )


def test_a_rank_that_moves_now_and_then_is_waited_for():
    dogs = dogs_of(3)
    for dog in dogs[:2]:
        dog.moves.enter("barrier")
    assert look(dogs, 100, do=lambda at: at % 9 == 0 and dogs[2].moves.phase(f"part {at}")) == []
    ended = look(dogs, 30)
    assert "rank 2 is computing or reading" in ended[0][1] and "phase part 99" in ended[0][1]


def test_a_job_that_was_stopped_as_a_whole_goes_on():
    dogs = dogs_of(2)
    for dog in dogs:
        dog.moves.enter("barrier")
    assert look(dogs, 9) == []  # then everything, the watchdogs too, stands still for an hour
    for dog in dogs:
        dog.moves.leave("barrier")
    assert look(dogs, 9) == []


def test_one_rank_alone_is_watched_too():
    with watched(SelfCommunicator(), 600) as comm:
        assert isinstance(comm, ObservedCommunicator)
        comm.phase = "epoch 1"
    (dog,) = dogs_of(1)
    dog.moves.phase("epoch 1")
    ended = look([dog], 30)
    assert ended[0][1].startswith("watchdog: nothing has moved for 10 s: rank 0 is computing or reading")


def test_without_a_limit_and_on_thread_ranks_there_is_none():
    comm = SelfCommunicator()
    with watched(comm, 0) as same:
        assert same is comm

    def body(comm):
        with watched(comm, 600) as same:
            assert same is comm

    run_threads(2, body)


def run(tmp_path, how, limit, by="mpi"):
    ended = launch_text(3, PROGRAM, tmp_path, how, limit, limit_s=80, by=by)
    assert not ended.is_late, ended.err
    assert ended.left == []
    return ended


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("how, who", [
    (
        "stop",
        r"rank 1 gives no sign of life .*; ranks 0, 2 wait in wait of a started exchange\(float64, shape 3x3\), phase epoch 7",
    ),
    (
        "sleep",
        r"rank 1 is computing or reading at program.py:\d+ .*phase epoch 7; ranks 0, 2 wait in all_reduce\(float32, shape 100\)",
    ),
])  # fmt: skip
def test_a_stalled_job_ends_with_70_and_names_rank_and_operation(tmp_path, how, who):
    ended = run(tmp_path, how, 1)
    assert ended.code == 70, ended.err
    assert ended.seconds < 60  # a loaded machine
    (line,) = re.findall(r"^spgnn: .*\n.*", ended.err, re.M)
    assert re.search(rf"^spgnn: watchdog: nothing has moved for 1 s: {who}.*\n  rank [02]; phase: ", line), line
    assert "end" not in ended.out


@pytest.mark.full  # torchrun gives the rank that is stopped 30 s to end
@pytest.mark.mpi
@pytest.mark.slow
def test_a_stalled_job_of_torchrun_ends_too(tmp_path):
    ended = run(tmp_path, "stop", 2, by="torch")
    assert re.search("spgnn: (error: )?watchdog: nothing has moved for 2 s: rank 1 gives no sign of life", ended.err)
    assert "end" not in ended.out


TRAINING = """
import os, signal, sys, threading
from spgnn.cli import main
from spgnn.dist.launch import this_job

def stop_when_training():
    while not this_job().phase.startswith("epoch"):
        pass
    os.kill(os.getpid(), signal.SIGSTOP)

if this_job().rank == 1:
    threading.Thread(target=stop_when_training, daemon=True).start()
sys.argv = "spgnn train sbm:n=300,seed=1 --hidden 8 --epochs 1000000 --watchdog 1 --out none --json".split()
sys.exit(main())
"""


@pytest.mark.mpi
@pytest.mark.slow
def test_a_training_of_which_a_rank_is_stopped_ends_with_70(tmp_path):
    ended = launch_text(2, TRAINING, tmp_path, limit_s=40)
    assert (ended.code, ended.left, ended.out) == (70, [], ""), ended.err
    (line,) = [line for line in ended.err.splitlines() if "watchdog" in line]
    assert re.search(r"rank 1 gives no sign of life .*; rank 0 waits in \w+.*, phase epoch \d+", line), line


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


def test_it_runs_next_to_the_rank_and_join_waits_for_its_end():
    go, done = threading.Event(), []
    thread = BackgroundThread(lambda: (go.wait(5), done.append(threading.get_ident())), "spgnn test")
    thread.start()
    assert not done
    go.set()
    thread.join()
    assert done and done != [threading.get_ident()]


def test_a_thread_that_dies_in_its_first_lines_is_an_error_and_no_endless_wait(monkeypatch):
    monkeypatch.setattr(_thread, "start_new_thread", lambda function, args: 0)  # as where its first frame needs memory
    thread = BackgroundThread(list, "spgnn test")
    with pytest.raises(ResourceError, match=r"thread spgnn test did not start within 0.01 s: out of memory") as caught:
        thread.start(0.01)
    assert caught.value.exit_code == 4
    thread.join()  # returns at once
