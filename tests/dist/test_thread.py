"""Thread ranks: a rank that fails, leaves or stays away releases the others, and is named."""

import gc
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from spgnn.dist import run_threads
from spgnn.errors import CollectiveError, RankError, UsageError


def test_the_first_error_is_raised_with_its_rank_and_the_others_are_released():
    seen = {}

    def body(comm):
        comm.phase = "epoch 3"
        if comm.rank == 1:
            raise ZeroDivisionError("boom")
        try:
            comm.all_reduce(np.ones(2))
        except RankError as error:
            seen[comm.rank] = str(error)
            raise

    start = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="boom") as caught:
        run_threads(3, body)
    assert caught.value.__notes__ == ["raised on rank 1 of 3, phase: epoch 3"]
    assert seen == dict.fromkeys((0, 2), "rank 1 failed: ZeroDivisionError: boom")
    assert time.monotonic() - start < 2
    assert not [t for t in threading.enumerate() if t.name.startswith("rank ") and t.is_alive()]


def test_a_system_exit_of_a_rank_reaches_the_caller():
    with pytest.raises(SystemExit) as caught:
        run_threads(2, lambda comm: comm.barrier() if comm.rank else sys.exit(3))
    assert caught.value.code == 3


def test_a_rank_that_returned_is_missed_at_once():
    with pytest.raises(CollectiveError, match=r"rank 0 waits in all_reduce.* for rank 1, which has returned"):
        run_threads(2, lambda comm: comm.all_reduce(np.ones(2)) if comm.rank == 0 else None)


def test_a_rank_that_stays_away_is_named_after_the_time_limit():
    leave = threading.Event()

    def body(comm):
        comm.phase = "reading the graph"
        if comm.rank == 1:
            leave.wait(5)
        comm.barrier()

    with pytest.raises(CollectiveError, match=r"waited 0.1 s in barrier for rank 1 \(phase: reading the graph\)"):
        run_threads(2, body, timeout=0.1)
    leave.set()


def test_a_rank_that_never_ends_is_named():
    leave = threading.Event()
    with pytest.raises(RankError, match=r"rank 1 \(phase: set-up\) did not end within 0.1 s"):
        run_threads(2, lambda comm: comm.rank == 1 and leave.wait(5), timeout=0.1)
    leave.set()


def test_a_send_buffer_that_is_changed_too_early_is_noticed():
    def body(comm):
        send, recv = np.ones(comm.size), np.ones(comm.size)
        request = comm.start_all_to_all(send, [1] * comm.size, recv, [1] * comm.size)
        assert np.isnan(recv).all()  # what is read too early shows
        send += 1
        request.wait()

    with pytest.raises(CollectiveError, match="send was changed before its request had ended"):
        run_threads(2, body)


def test_a_communicator_that_is_kept_does_not_keep_what_the_ranks_of_a_failed_run_held():
    kept, held = [], []

    def body(comm):
        x = np.ones(3)
        kept.append(comm)
        held.append(weakref.ref(x))
        raise ZeroDivisionError("boom")

    with pytest.raises(ZeroDivisionError) as caught:
        run_threads(2, body)
    del caught
    gc.collect()
    assert len(kept) == 2 and [ref() for ref in held] == [None, None]


def test_an_abort_of_a_rank_ends_all_with_its_code():
    with pytest.raises(RankError, match=r"rank 1 aborted \(phase: epoch 2\): loss is NaN") as caught:
        run_threads(3, lambda comm: abort(comm) if comm.rank == 1 else comm.barrier())
    assert caught.value.exit_code == 5


def abort(comm):
    comm.phase = "epoch 2"
    comm.abort(5, "loss is NaN")


def test_no_ranks_are_refused():
    with pytest.raises(UsageError, match="ranks = 0; expected an integer of 1 or more"):
        run_threads(0, lambda comm: None)
    with pytest.raises(UsageError, match="ranks = '2'; expected an integer"):
        run_threads("2", lambda comm: None)
