"""The guard names the first rank that dies without a message, once."""

import os
import re
import socket
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from spgnn.dist.job import protect
from spgnn.dist.job.guard import CLEAN, FAILED, UP, GuardLine, claim_report, watch
from spgnn.errors import InputError


def connected(address, kind, rank):
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.connect(address)
    line.send(f"{kind} {rank} 0".encode())
    return line


@contextmanager
def guarding(token: str):
    """Run a guard in a thread; yields the list of what it returns, complete after the block."""
    found = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0spgnn-{token}")
        listener.listen()
        guard = threading.Thread(target=lambda: found.append(watch(listener, token, "here")))
        guard.start()
        yield found
        guard.join(10)


@pytest.mark.parametrize(
    "ends, named, has_failed",  # (rank, its last message), in the order of their ends
    [
        (
            [(1, b"epoch 7"), (0, b"epoch 6"), (2, b"epoch 7"), (3, b"epoch 7")],
            "spgnn: error: killed.*\n  rank 1; phase: epoch 7; host here",
            True,
        ),
        ([(0, CLEAN), (2, b"epoch 7"), (1, CLEAN)], "error: killed.*\n  rank 2;", True),
        ([(1, FAILED), (0, b"epoch 7"), (2, b"epoch 7")], "", True),
        ([(0, CLEAN), (2, CLEAN), (1, CLEAN)], "", False),
    ],
)
def test_the_first_rank_that_dies_without_a_message_is_named_unless_one_has_reported(ends, named, has_failed, capsys):
    token = f"test-{os.getpid()}"
    with guarding(token) as found:
        lines = {}
        for rank in range(len(ends)):
            lines[rank] = [connected(f"\0spgnn-{token}", kind, rank) for kind in ("life", "talk")]
            assert lines[rank][1].recv(64) == UP
        for rank, message in ends:
            lines[rank][1].send(message)
        for rank, _ in ends:
            for line in lines[rank]:
                line.close()
            time.sleep(0.02)  # the guard sees each end on its own
    assert found == [has_failed]
    said = capsys.readouterr().err
    assert said.count("\n") == 2 * bool(named) and re.search(named, said)


def test_one_process_of_a_host_reports_a_failure_of_a_job_and_another_one_when_it_has_died():
    token = f"test-{os.getpid()}"
    first, other = claim_report(token), claim_report(f"{token}-of-another-job")
    assert first is not None and other is not None and claim_report(token) is None
    first.close()
    with claim_report(token), other:
        assert claim_report(token) is None


def test_the_guard_holds_the_right_to_report_of_a_rank_that_has_reported_and_ended(capsys):
    """A slow launcher ends the other ranks late: they report no second failure, and neither does the guard."""
    token = f"test-{os.getpid()}-held"
    with guarding(token) as found:
        first, other = (GuardLine(rank, token, lambda: None, []) for rank in range(2))
        assert first.claim_report()
        first.fail()
        first._claim.close()  # as its process ends
        for line in first._lines:
            line.close()
        assert not other.claim_report()
        for line in other._lines:
            line.close()
    assert found == [True] and capsys.readouterr().err == ""


def test_a_rank_tells_the_guard_of_its_report_before_it_waits_for_the_launcher(monkeypatch, capsys):
    heard, job = [], protect.JobMember(protect.JobLauncher("mpirun", 1, 2))
    job._line = SimpleNamespace(claim_report=lambda: True, fail=lambda: heard.append("failed"))
    monkeypatch.setattr(protect, "_wait_until_read", lambda fd: heard.append(capsys.readouterr().err[:22]))
    monkeypatch.setattr(os, "_exit", lambda code: heard.append(code))
    monkeypatch.setattr(protect, "abort_world", lambda mpi, code: None)
    job.fail(InputError("graph.txt:7: bad"))
    assert heard[:2] == ["failed", "spgnn: graph.txt:7: bad"[:22]] and heard[-1] == 3
