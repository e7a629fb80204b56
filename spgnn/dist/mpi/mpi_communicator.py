"""MpiCommunicator: mpi4py on buffers; headers travel on a second communicator next to the data.

With library.py the only file that imports mpi4py. Every collective first starts an Ialltoall of headers (64 bytes per
peer), so that ranks that differ raise instead of hanging or adding float32 bits to float64 values.
Rows travel as contiguous byte types, so counts and displacements are rows, not bytes. What one rank
sends another beyond `max_bytes` follows in pieces, point to point: some MPIs fail above 2^31.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
import weakref
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from ...errors import CollectiveError
from ...machine import core_ids, unseen_ranks
from .. import headers
from ..base import BaseCommunicator, copy_own_rows
from ..communicator import Op
from ..job.background import BackgroundThread
from ..job.protect import InJob, JobMember, abort_world, shared_files
from ..traffic import Traffic

INTERVAL_S = 0.0005


class ProgressThread:
    """Call advance of each added request every INTERVAL_S until it has ended; sleep while there is none.

    MPI sends nothing between its own calls: the messages of an Ialltoallv that is followed by a GEMM leave at
    the wait. Test every 0.5 ms hides all of it, at no visible cost to the GEMM (which holds no GIL).
    `lock` is held during advance: a rank that holds it has its request for itself.
    """

    def __init__(self):
        self.lock = threading.Condition()
        self._requests: list[MpiRequest] = []
        self._thread = BackgroundThread(self._run, "spgnn progress")
        self._is_closed = True

    def start(self) -> None:
        """Start the thread."""
        self._is_closed = False
        self._thread.start()

    def add(self, request: MpiRequest) -> None:
        """Advance request from now on."""
        with self.lock:
            self._requests.append(request)
            self.lock.notify()

    def remove(self, request: MpiRequest) -> None:
        """Stop advancing request."""
        with self.lock:
            if request in self._requests:
                self._requests.remove(request)

    def close(self) -> None:
        """End the thread."""
        if self._is_closed:
            return
        with self.lock:
            self._is_closed = True
            self.lock.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self.lock:
                self.lock.wait_for(lambda: self._requests or self._is_closed)
                if self._is_closed:
                    return
                self._requests = [request for request in self._requests if not request.advance()]
            time.sleep(INTERVAL_S)


MAX_BYTES = 2**31 - 1
_OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
_TYPES = {
    "bool": MPI.UINT8_T, "int8": MPI.INT8_T, "uint8": MPI.UINT8_T, "int32": MPI.INT32_T, "int64": MPI.INT64_T,
    "float32": MPI.FLOAT, "float64": MPI.DOUBLE,
}  # fmt: skip
YIELDS, PAUSE_S = 200, 5e-5  # where ranks share cores: yield the core this many times, then sleep
_TAIL = 7  # tag of the pieces beyond max_bytes
_LONGEST = 4096  # bytes of a message of MpiChannel
_NOTHING_TO_SEND, _NOTHING_TO_RECEIVE = np.zeros(1, np.uint8), np.zeros(1, np.uint8)


def thread_level() -> str:
    """Return MPI's thread support: single, funneled, serialized or multiple."""
    names = {MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled", MPI.THREAD_SERIALIZED: "serialized"}
    return names.get(MPI.Query_thread(), "multiple")


def connect_world(job: JobMember) -> MpiCommunicator:
    """Return the communicator of all ranks, registered with job. Collective."""
    token = np.frombuffer(secrets.token_bytes(8), np.uint8).copy()
    MPI.COMM_WORLD.Bcast([token, MPI.BYTE], 0)
    job.join(MPI.COMM_WORLD.rank, token.tobytes().hex(), MPI.COMM_WORLD.Barrier, shared_files())
    return connect(MPI.COMM_WORLD, job)


def connect(ranks: MPI.Comm, job: JobMember | None = None) -> MpiCommunicator:
    """Return the communicator of the ranks of one of mpi4py. Collective."""
    progress = ProgressThread() if thread_level() == "multiple" else None
    if progress is not None:
        progress.start()  # before anything large: a thread needs memory to start
    return MpiCommunicator(ranks, progress=progress, job=job)


class MpiCommunicator(InJob, BaseCommunicator):
    """One rank of an MPI communicator, which is duplicated (data, headers) and freed by `close`.

    Args: max_bytes      the largest message that MPI is given in one piece; equal on all ranks.
          progress       the thread that advances started exchanges, or None: `test` and `wait` do it.
          job            is notified of phases and aborts, or None.
          yields_cores   whether a rank that waits lets others run; None: shares_cores(comm).
    """

    def __init__(
        self, comm: MPI.Comm, max_bytes: int = MAX_BYTES, progress: ProgressThread | None = None, job: JobMember | None = None,
        traffic: Traffic | None = None, yields_cores: bool | None = None,
    ):  # fmt: skip
        self._handles = MpiHandles(comm, shares_cores(comm) if yields_cores is None else yields_cores, progress)
        self._is_root = traffic is None
        self._whole: MpiCommunicator | None = None  # that this is a part of, in use as long as this is
        self._job = job
        self.max_bytes = max_bytes
        super().__init__(comm.rank, comm.size, traffic)

    def abort(self, exit_code: int, message: str) -> None:
        if self._job is None:
            abort_world(MPI, exit_code)
        else:
            super().abort(exit_code, message)

    def close(self) -> None:
        """Free the MPI handles of this communicator and its splits. Collective, and the last call."""
        self._handles.close()
        self.release()

    def release(self) -> None:
        """`close` without a comparison of the ranks. Collective."""
        self._handles.free()
        if self._handles.progress is not None and self._is_root:
            self._handles.progress.close()

    def open_channel(self) -> MpiChannel | None:
        """Return a channel for the watchdogs of these ranks; None if MPI allows calls from one thread only. Collective."""
        return MpiChannel(self._handles.headers.Dup()) if thread_level() == "multiple" else None

    def _reduce(self, head: np.ndarray, x: np.ndarray, op: Op) -> None:
        flat = x.reshape(-1)
        if x.dtype == bool:
            flat = flat.view(np.uint8)
        step = max(1, self.max_bytes // x.itemsize)
        pieces = [[flat[i : i + step], _TYPES[x.dtype.name]] for i in range(0, len(flat), step)]
        data = self._handles.data
        self._handles.start(head, lambda: [data.Iallreduce(MPI.IN_PLACE, p, _OPS[op]) for p in pieces], None, wait=True)

    def _exchange(
        self, head: np.ndarray, send: np.ndarray, send_rows: np.ndarray, recv: np.ndarray, recv_rows: np.ndarray, wait:
        bool,
    ) -> MpiRequest:  # fmt: skip
        copy_own_rows(send, send_rows, recv, recv_rows, self.rank)
        units = _units(send, self.max_bytes)
        return self._handles.exchange(head, _bytes(send), send_rows, _bytes(recv), recv_rows, units, wait)

    def _gather(self, head: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counts = headers.rows_of(self._meet(head))
        gathered = np.empty((counts.sum(), *x.shape[1:]), x.dtype)
        unit, scale, most = _units(x, self.max_bytes)
        counts_u = counts * scale
        starts = np.concatenate([[0], np.cumsum(counts_u)[:-1]])
        step = max(1, most // self.size)
        out, datatype = _bytes(x), self._handles.row_type(unit)
        for done in range(0, counts_u.max(initial=0), step):
            now = np.clip(counts_u - done, 0, step)
            n = now[self.rank]
            piece, into = _at_two_addresses(out[done * unit : (done + n) * unit], _bytes(gathered))
            self._handles.wait(
                [self._handles.data.Iallgatherv([piece, n, datatype], [into, (now, starts + done), datatype])]
            )
        return gathered, counts

    def _broadcast(self, head: np.ndarray, x: np.ndarray, root: int) -> None:
        self._meet(head)
        flat = _bytes(x)
        for start in range(0, len(flat), self.max_bytes):
            piece = [flat[start : start + self.max_bytes], MPI.BYTE]
            self._handles.wait([self._handles.data.Ibcast(piece, root)])

    def _split(self, head: np.ndarray, color: int, key: int) -> MpiCommunicator:
        self._meet(head)
        handles = self._handles
        is_used = handles.used_splits()  # on some rank
        handles.wait([handles.data.Iallreduce(MPI.IN_PLACE, [is_used, MPI.UINT8_T], MPI.MAX)])
        handles.free_unused(is_used)
        part = handles.data.Split(color, key)
        peers = np.empty(part.size, np.int64)
        part.Allgather([np.array([self.rank]), MPI.INT64_T], [peers, MPI.INT64_T])
        traffic = Traffic(part.size, self.traffic, peers)
        comm = MpiCommunicator(part, self.max_bytes, handles.progress, self._job, traffic, handles.yields_cores)
        part.Free()
        comm.phase = self.phase
        comm._whole = self
        handles.splits.append((weakref.ref(comm), comm._handles))
        return comm

    def _meet(self, head: np.ndarray) -> np.ndarray:
        """Wait for the headers of all ranks; return those meant for this one, (size, 8)."""
        return self._handles.start(head, list, None, wait=True).heads


class MpiRequest:
    """One started collective: headers first, then its data; the thread of its handles advances it between its calls."""

    def __init__(
        self,
        handles: MpiHandles,
        heads: np.ndarray,
        met: MPI.Request,
        data: list[MPI.Request],
        recv_rows: np.ndarray | None,
    ):
        self.heads = heads
        self._handles, self._recv_rows = handles, recv_rows
        self._met, self._data = met, data
        self._is_done = False
        self._error: MPI.Exception | None = None
        self.ended_s: float | None = None

    def advance(self) -> bool:
        """Test; return whether MPI has ended it. An error of MPI is raised by `wait`."""
        try:
            has_ended = MPI.Request.Testall([self._met, *self._data])
        except MPI.Exception as error:
            self._error, has_ended = error, True
        if has_ended and self.ended_s is None:
            self.ended_s = time.monotonic()
        return has_ended

    def test(self) -> bool:
        if not self._is_done:
            progress = self._handles.progress
            with contextlib.nullcontext() if progress is None else progress.lock:
                ended = self.advance()
            if ended:
                self.wait()
        return self._is_done

    def wait(self) -> None:
        if self._is_done:
            return
        rank = self._handles.headers.rank
        if self._handles.progress is not None:
            self._handles.progress.remove(self)
        self._handles.wait([self._met])
        # Before the data: if the ranks differ, waiting for it would hang or fail with a worse message.
        try:
            headers.check_headers(self.heads, rank, self._recv_rows)
        except CollectiveError:
            self._handles.unfinished.append(self)  # MPI may still read and write its buffers
            raise
        try:
            if self._error is not None:
                raise self._error
            self._handles.wait(self._data)
        except MPI.Exception as error:
            raise CollectiveError(f"rank {rank}: MPI failed: {error.Get_error_string()}") from error
        self._is_done = True
        self.ended_s = self.ended_s or time.monotonic()


class MpiHandles:
    """The MPI handles of a communicator and its splits, two duplicates of each, and the collectives that start on them.

    MPI has about 2,000 communicators and frees none by itself. Freeing is collective, and ranks drop a split at
    different times: the next split frees those that no rank uses any more.
    """

    def __init__(self, comm: MPI.Comm, yields_cores: bool, progress: ProgressThread | None):
        self.yields_cores, self.progress = yields_cores, progress
        self.data, self.headers = comm.Dup(), comm.Dup()
        self.unfinished: list[MpiRequest] = []  # of ranks that differ, held as long as the communicator
        self._row_types: dict = {}
        self.splits: list[tuple[weakref.ref, MpiHandles]] = []  # in the order of the calls

    def row_type(self, n_bytes: int) -> MPI.Datatype:
        """Return the MPI datatype of a row of n_bytes."""
        if n_bytes not in self._row_types:
            self._row_types[n_bytes] = MPI.BYTE.Create_contiguous(n_bytes).Commit()
        return self._row_types[n_bytes]

    def wait(self, requests: list) -> None:
        """Wait for MPI requests. Where ranks share cores, let the others run: MPI's own wait would spin."""
        if not self.yields_cores:
            MPI.Request.Waitall(requests)
            return
        tries = 0
        while not MPI.Request.Testall(requests):
            tries += 1
            time.sleep(0 if tries < YIELDS else PAUSE_S)

    def start(self, head: np.ndarray, post: Callable[[], list], recv_rows: np.ndarray | None, wait: bool) -> MpiRequest:
        """Start the headers and what post() starts; if wait, compare the headers before any data is sent."""
        heads = np.empty_like(head)
        met = self.headers.Ialltoall([head, MPI.INT64_T], [heads, MPI.INT64_T])
        if wait:
            self.wait([met])
            headers.check_headers(heads, self.headers.rank, recv_rows)
        request = MpiRequest(self, heads, met, post(), recv_rows)
        if wait:
            request.wait()
        elif self.progress is not None:
            self.progress.add(request)
        return request

    def exchange(
        self, head: np.ndarray, out: np.ndarray, send_rows: np.ndarray, into: np.ndarray, recv_rows: np.ndarray,
        units: tuple[int, int, int], wait: bool,
    ) -> MpiRequest:  # fmt: skip
        """Start the headers and an exchange of rows, given as bytes; units: see _units."""
        unit, scale, most = units
        data, datatype = self.data, self.row_type(unit)
        counts, starts = headers.of_others(send_rows * scale, data.rank)
        recv_counts, recv_starts = headers.of_others(recv_rows * scale, data.rank)
        out, into = _at_two_addresses(out, into)

        def post():
            firsts = [
                [buffer, (np.minimum(n, most), at), datatype]
                for buffer, n, at in ((out, counts, starts), (into, recv_counts, recv_starts))
            ]
            requests = [data.Ialltoallv(*firsts)]
            for buffer, n, at, call in (
                (into, recv_counts, recv_starts, data.Irecv),
                (out, counts, starts, data.Isend),
            ):
                for q in np.flatnonzero(n > most):
                    for done in range(most, n[q], most):
                        first, size = (at[q] + done) * unit, min(most, n[q] - done)
                        requests.append(call([buffer[first : first + size * unit], size, datatype], int(q), _TAIL))
            return requests

        return self.start(head, post, recv_rows, wait)

    def used_splits(self) -> np.ndarray:
        """Return whether this rank still uses each split, (splits,) uint8."""
        return np.array([part() is not None for part, _ in self.splits], np.uint8)

    def free_unused(self, is_used: np.ndarray) -> None:
        """Free the splits that are not used, the same ones on all ranks. Collective."""
        for (_, handles), used in zip(self.splits, is_used):
            if not used:
                handles.free()
        self.splits = [entry for entry, used in zip(self.splits, is_used) if used]

    def close(self) -> None:
        """Free everything once all ranks of a communicator call this; nothing if it is free. Collective."""
        if not self.data:
            return
        for _, handles in self.splits:
            handles.close()
        heads = np.empty_like(head := headers.header("close", self.headers.size))
        self.wait([self.headers.Ialltoall([head, MPI.INT64_T], [heads, MPI.INT64_T])])
        headers.check_headers(heads, self.headers.rank)
        self.free()

    def free(self) -> None:
        """Free everything, the remaining splits too; nothing if it is free. Collective."""
        if not self.data:
            return
        for _, handles in self.splits:
            handles.free()
        for datatype in self._row_types.values():
            datatype.Free()
        self.headers.Free()
        self.data.Free()


class MpiChannel:
    """Short messages from thread to thread, for watchdogs; needs MPI_THREAD_MULTIPLE. Never waits.

    Args: comm  an mpi4py communicator that nothing else uses; freed by `close`.
    """

    def __init__(self, comm: MPI.Comm):
        self._comm = comm
        self._sent: list[tuple] = []

    def send(self, rank: int, message: bytes) -> None:
        """Send; a rank that is stopped receives it later or never."""
        self._sent = [(request, held) for request, held in self._sent if not request.Test()]
        self._sent.append((self._comm.Isend(message[:_LONGEST], rank), message))

    def receive(self) -> list[bytes]:
        """Return the messages that have arrived."""
        arrived = []
        while self._comm.Iprobe():
            message = bytearray(_LONGEST)
            self._comm.Recv(message)
            arrived.append(bytes(message).rstrip(b"\0"))
        return arrived

    def close(self) -> None:
        """Receive the messages in flight and free the communicator. Collective, after a barrier."""
        self.receive()
        self._comm.Free()


def shares_cores(comm: MPI.Comm = MPI.COMM_WORLD) -> bool:
    """Return whether a rank of an mpi4py communicator on this host has less than a core to itself. Collective."""
    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    mine = core_ids()
    is_mine = np.zeros((here.size, here.allreduce(mine[-1], MPI.MAX) + 1), np.uint8)
    is_mine[here.rank, mine] = 1
    here.Allgather(MPI.IN_PLACE, is_mine)
    here.Free()
    users = is_mine.sum(axis=0) + unseen_ranks(len(is_mine))
    shares = (is_mine / np.maximum(users, 1)).sum(axis=1)  # share_of_cores of each rank
    return bool(shares.min() < 1 - 1e-9)


def _at_two_addresses(out: np.ndarray, into: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (out, into), an empty buffer replaced by memory of its own.

    An empty view such as recv[:0] has the address of recv, and Open MPI's nonblocking collectives take equal
    addresses for MPI_IN_PLACE: that rank would run another schedule than the others and wait forever.
    """
    return out if len(out) else _NOTHING_TO_SEND, into if len(into) else _NOTHING_TO_RECEIVE


def _units(x: np.ndarray, max_bytes: int) -> tuple[int, int, int]:
    """Return (bytes of a unit, units per row, units per message): the row, or the entry if a row is above max_bytes."""
    n_bytes = headers.row_bytes(x)
    unit, scale = (max(1, n_bytes), min(1, n_bytes)) if n_bytes <= max_bytes else (x.itemsize, n_bytes // x.itemsize)
    return unit, scale, max_bytes // unit


def _bytes(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).view(np.uint8)
