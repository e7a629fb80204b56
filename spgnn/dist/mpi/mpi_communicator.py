"""MpiCommunicator: mpi4py on buffers; headers on a communicator of their own beside the data.

The only file that imports mpi4py. Every collective first starts an Ialltoall of headers (64 bytes a
peer), so that ranks that differ raise instead of hanging or adding float32 bits to float64 ones.
Rows travel as contiguous byte types, so counts and displacements are rows, not bytes. What one rank
sends another beyond `max_bytes` follows in pieces, point to point: some MPIs fail above 2^31.
"""

from __future__ import annotations

import ctypes
import secrets
import time
import weakref

import numpy as np
from mpi4py import MPI

from ...errors import CollectiveError, SpgnnError
from ...machine import core_ids
from .. import headers as buffers
from ..base import BaseCommunicator, copy_own_rows
from ..job.protect import Job, abort_world, shared_files
from ..traffic import Traffic
from .handles import MpiHeld
from .line import MpiLine
from .progress import Progress

MAX_BYTES = 2**31 - 1
_OPS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
_TYPES = {
    "bool": MPI.UINT8_T, "int8": MPI.INT8_T, "uint8": MPI.UINT8_T, "int32": MPI.INT32_T, "int64": MPI.INT64_T,
    "float32": MPI.FLOAT, "float64": MPI.DOUBLE,
}  # fmt: skip
YIELDS, PAUSE_S = 200, 5e-5  # where ranks share cores: give the core away so often, then sleep
_TAIL = 7  # tag of the pieces beyond max_bytes
_NOTHING_TO_SEND, _NOTHING_TO_RECEIVE = np.zeros(1, np.uint8), np.zeros(1, np.uint8)


def world_size() -> int:
    """Return the number of ranks that MPI has started."""
    return MPI.COMM_WORLD.size


def library() -> str:
    """Return the name and version of the MPI library."""
    return " ".join(MPI.Get_library_version().split()[:3])


def is_cuda_aware() -> bool:
    """Whether the MPI library says that it takes addresses of CUDA devices; one that does not know the question does not."""
    query = getattr(ctypes.CDLL(MPI.__file__), "MPIX_Query_cuda_support", None)
    return query is not None and bool(query())


def thread_level() -> str:
    """Return what MPI lets threads do: single, funneled, serialized or multiple."""
    names = {MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled", MPI.THREAD_SERIALIZED: "serialized"}
    return names.get(MPI.Query_thread(), "multiple")


def connect_world(job: Job) -> MpiCommunicator:
    """Return the communicator of all ranks, known to job. Collective."""
    token = np.frombuffer(secrets.token_bytes(8), np.uint8).copy()
    MPI.COMM_WORLD.Bcast([token, MPI.BYTE], 0)
    job.join(MPI.COMM_WORLD.rank, token.tobytes().hex(), MPI.COMM_WORLD.Barrier, shared_files())
    progress = Progress() if MPI.Query_thread() == MPI.THREAD_MULTIPLE else None
    comm = MpiCommunicator(MPI.COMM_WORLD, progress=progress, job=job)
    comm.phase = "set-up"
    return comm


class MpiCommunicator(BaseCommunicator):
    """One rank of an MPI communicator, which is duplicated (data, headers) and freed by `close`.

    Args: max_bytes   the largest message that MPI is given in one piece; equal on all ranks.
          progress    the thread that moves started exchanges on, or None: `test` and `wait` do it.
          job         what hears of phases and aborts, or None.
          gives_way   of the communicator that this one is a part of; None: shares_cores(comm).
    """

    def __init__(
        self, comm, max_bytes: int = MAX_BYTES, progress: Progress | None = None, job: Job | None = None,
        traffic: Traffic | None = None, gives_way: bool | None = None,
    ):  # fmt: skip
        self._held = MpiHeld(comm, shares_cores(comm) if gives_way is None else gives_way)
        self._data, self._headers, self._row_types = self._held.data, self._held.headers, self._held.row_types
        self._is_root = traffic is None
        self._progress = progress
        self._job = job
        self._phase = ""
        self.max_bytes = max_bytes
        super().__init__(comm.rank, comm.size, traffic)

    @property
    def phase(self) -> str:
        return self._phase

    @phase.setter
    def phase(self, text: str) -> None:
        if text != self._phase:
            self._phase = text
            if self._job is not None:
                self._job.set_phase(text)

    def abort(self, exit_code: int, message: str) -> None:
        if self._job is None:
            abort_world(MPI, exit_code)
        else:
            self._job.fail(_Aborted(message, exit_code))

    def close(self) -> None:
        """Free what MPI holds for this communicator and its splits. Collective, and the last one."""
        _close(self._held)
        if self._progress is not None and self._is_root:
            self._progress.close()

    def open_line(self) -> MpiLine | None:
        """Return a line for the watchdogs of these ranks, None where MPI lets one thread call only. Collective."""
        return MpiLine(self._headers.Dup()) if thread_level() == "multiple" else None

    def _reduce(self, head, x, op, wait):
        flat = x.reshape(-1)
        if x.dtype == bool:
            flat = flat.view(np.uint8)
        step = max(1, self.max_bytes // x.itemsize)
        pieces = [[flat[i : i + step], _TYPES[x.dtype.name]] for i in range(0, len(flat), step)]
        return self._start(head, lambda: [self._data.Iallreduce(MPI.IN_PLACE, p, _OPS[op]) for p in pieces], None, wait)

    def _exchange(self, head, send, send_rows, recv, recv_rows, wait):
        copy_own_rows(send, send_rows, recv, recv_rows, self.rank)
        return self._exchange_bytes(head, _bytes(send), send_rows, _bytes(recv), recv_rows, *self._unit(send), wait)

    def start_addresses(
        self, send: int, send_rows: np.ndarray, recv: int, recv_rows: np.ndarray, row_bytes: int
    ) -> MpiRequest:
        """Start an all_to_all of rows at addresses, of a device where is_cuda_aware; rows to oneself stay behind. Counts nothing."""
        row = np.empty((0, row_bytes), np.uint8)
        head = buffers.with_rows(buffers.header("all_to_all", self.size, row, row.shape[1:]), send_rows)
        out, into = (
            MPI.buffer.fromaddress(at, int(rows.sum()) * row_bytes)
            for at, rows in ((send, send_rows), (recv, recv_rows))
        )
        return self._exchange_bytes(head, out, send_rows, into, recv_rows, *self._unit(row), wait=False)

    def _exchange_bytes(self, head, out, send_rows, into, recv_rows, unit: int, scale: int, wait: bool) -> MpiRequest:
        most = self.max_bytes // unit
        counts, starts = buffers.of_others(send_rows * scale, self.rank)
        recv_counts, recv_starts = buffers.of_others(recv_rows * scale, self.rank)
        datatype = self._row_type(unit)
        out, into = _apart(out, into)

        def post():
            firsts = [
                [data, (np.minimum(n, most), at), datatype]
                for data, n, at in ((out, counts, starts), (into, recv_counts, recv_starts))
            ]
            requests = [self._data.Ialltoallv(*firsts)]
            for data, n, at, call in (
                (into, recv_counts, recv_starts, self._data.Irecv),
                (out, counts, starts, self._data.Isend),
            ):
                for q in np.flatnonzero(n > most):
                    for done in range(most, n[q], most):
                        first, size = (at[q] + done) * unit, min(most, n[q] - done)
                        requests.append(call([data[first : first + size * unit], size, datatype], int(q), _TAIL))
            return requests

        return self._start(head, post, recv_rows, wait)

    def _gather(self, head, x):
        counts = buffers.rows_of(self._meet(head))
        out = np.empty((counts.sum(), *x.shape[1:]), x.dtype)
        unit, scale = self._unit(x)
        counts_u = counts * scale
        starts = np.concatenate([[0], np.cumsum(counts_u)[:-1]])
        step = max(1, self.max_bytes // (unit * self.size))
        mine, into, datatype = _bytes(x), _bytes(out), self._row_type(unit)
        for done in range(0, counts_u.max(initial=0), step):
            now = np.clip(counts_u - done, 0, step)
            piece = mine[done * unit : (done + now[self.rank]) * unit]
            piece, whole = _apart(piece, into)
            wait_for(
                [self._data.Iallgatherv([piece, now[self.rank], datatype], [whole, (now, starts + done), datatype])],
                self._held.gives_way,
            )
        return out, counts

    def _broadcast(self, head, x, root):
        self._meet(head)
        flat = _bytes(x)
        for start in range(0, len(flat), self.max_bytes):
            wait_for([self._data.Ibcast([flat[start : start + self.max_bytes], MPI.BYTE], root)], self._held.gives_way)

    def _split(self, head, color, key):
        self._meet(head)
        is_used = self._held.used()  # on some rank
        wait_for([self._data.Iallreduce(MPI.IN_PLACE, [is_used, MPI.UINT8_T], MPI.MAX)], self._held.gives_way)
        self._held.keep(is_used)
        part = self._data.Split(MPI.UNDEFINED if color is None else color, key)
        if part == MPI.COMM_NULL:
            self._held.add(None, None)
            return None
        peers = np.empty(part.size, np.int64)
        part.Allgather([np.array([self.rank]), MPI.INT64_T], [peers, MPI.INT64_T])
        traffic = Traffic(part.size, self.traffic, peers)
        comm = MpiCommunicator(part, self.max_bytes, self._progress, self._job, traffic, self._held.gives_way)
        part.Free()
        comm.phase = self.phase
        comm._whole = self  # which is in use as long as this part is
        self._held.add(weakref.ref(comm), comm._held)
        return comm

    def _meet(self, head) -> np.ndarray:
        """Wait for the headers of all ranks; return those meant for this one, (size, 8)."""
        return self._start(head, list, None, wait=True).heads

    def _start(self, head, post, recv_rows, wait) -> MpiRequest:
        """Start the headers and what post() starts; to wait: the headers first, so that no data is at stake."""
        heads = np.empty_like(head)
        met = self._headers.Ialltoall([head, MPI.INT64_T], [heads, MPI.INT64_T])
        if wait:
            wait_for([met], self._held.gives_way)
            buffers.check_headers(heads, self.rank, recv_rows)
        request = MpiRequest(self.rank, heads, met, post(), recv_rows, self._progress, self._held.gives_way)
        if wait:
            request.wait()
        elif self._progress is not None:
            self._progress.add(request)
        return request

    def _unit(self, x) -> tuple[int, int]:
        """Return (bytes of a unit, units a row): the row, or the entry where a row is above max_bytes."""
        n_bytes = buffers.row_bytes(x)
        if n_bytes <= self.max_bytes:
            return max(1, n_bytes), min(1, n_bytes)
        return x.itemsize, n_bytes // x.itemsize

    def _row_type(self, n_bytes: int):
        if n_bytes not in self._row_types:
            self._row_types[n_bytes] = MPI.BYTE.Create_contiguous(n_bytes).Commit()
        return self._row_types[n_bytes]


class _Aborted(SpgnnError):
    """What a rank ends the job with by `abort`."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


class MpiRequest:
    """One started collective: headers first, then its data; `progress` advances it between its calls."""

    def __init__(
        self, rank: int, heads: np.ndarray, met, data: list, recv_rows, progress: Progress | None, gives_way: bool
    ):
        self.heads = heads
        self._rank, self._recv_rows, self._progress, self._gives_way = rank, recv_rows, progress, gives_way
        self._met, self._data = met, data
        self._is_done = False
        self._error: MPI.Exception | None = None
        self.ended_s: float | None = None

    def advance(self) -> bool:
        """Test; return whether MPI has ended it. An error of MPI is kept for `wait`."""
        try:
            has_ended = MPI.Request.Testall([self._met, *self._data])
        except MPI.Exception as error:
            self._error, has_ended = error, True
        if has_ended and self.ended_s is None:
            self.ended_s = time.monotonic()
        return has_ended

    def test(self) -> bool:
        if not self._is_done:
            if self._progress is None:
                ended = self.advance()
            else:
                with self._progress.lock:
                    ended = self.advance()
            if ended:
                self.wait()
        return self._is_done

    def wait(self) -> None:
        if self._is_done:
            return
        if self._progress is not None:
            self._progress.remove(self)
        wait_for([self._met], self._gives_way)
        # Before the data: where ranks differ, that would hang or fail with less to say.
        buffers.check_headers(self.heads, self._rank, self._recv_rows)
        try:
            if self._error is not None:
                raise self._error
            wait_for(self._data, self._gives_way)
        except MPI.Exception as error:
            raise CollectiveError(f"rank {self._rank}: MPI failed: {error.Get_error_string()}") from error
        self._is_done = True
        self.ended_s = self.ended_s or time.monotonic()


def shares_cores(comm=MPI.COMM_WORLD) -> bool:
    """Whether one of the ranks of an mpi4py communicator on this host has less than a core to itself. Collective."""
    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    mine = core_ids()
    is_mine = np.zeros((here.size, here.allreduce(mine[-1], MPI.MAX) + 1), np.uint8)
    is_mine[here.rank, mine] = 1
    here.Allgather(MPI.IN_PLACE, is_mine)
    here.Free()
    shares = (is_mine / np.maximum(is_mine.sum(axis=0), 1)).sum(axis=1)  # share_of_cores of each rank
    return bool(shares.min() < 1 - 1e-9)


def wait_for(requests: list, gives_way: bool) -> None:
    """Wait for MPI requests. Where ranks share cores, let the others run: MPI's own wait would spin."""
    if not gives_way:
        MPI.Request.Waitall(requests)
        return
    tries = 0
    while not MPI.Request.Testall(requests):
        tries += 1
        time.sleep(0 if tries < YIELDS else PAUSE_S)


def _close(held: MpiHeld) -> None:
    """Free a communicator and its splits once all of its ranks have come here; nothing where that is done."""
    if not held.data:
        return
    for part in held.of_parts():
        _close(part)
    heads = np.empty_like(head := buffers.header("close", held.headers.size))
    wait_for([held.headers.Ialltoall([head, MPI.INT64_T], [heads, MPI.INT64_T])], held.gives_way)
    buffers.check_headers(heads, held.headers.rank)
    held.free()


def _apart(out, into):
    """Return (out, into), an empty buffer replaced by memory of its own.

    An empty view such as recv[:0] has the address of recv, and Open MPI's nonblocking collectives take equal
    addresses for MPI_IN_PLACE: that rank would run another schedule than the others and wait forever.
    """
    return out if len(out) else _NOTHING_TO_SEND, into if len(into) else _NOTHING_TO_RECEIVE


def _bytes(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).view(np.uint8)
