"""BackgroundThread: what happens when a thread cannot start."""

import _thread
import threading

import pytest

from spgnn.dist.job.background import BackgroundThread
from spgnn.errors import ResourceError


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


def test_a_system_without_room_for_a_thread_is_an_error_with_the_fix(monkeypatch):
    def refuse(function, args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    with pytest.raises(
        ResourceError, match="spgnn test could not be started: can't start new thread; raise the limits"
    ):
        BackgroundThread(list, "spgnn test").start()
