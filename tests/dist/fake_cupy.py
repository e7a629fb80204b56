"""CuPy's streams, events and NCCL for ranks that are threads, on the memory of the CPU.

What is put on a stream runs when someone waits for it or asks whether it has ended, never before: a
result that is read without waiting shows. The names are those of CuPy 14 that dist/device/nccl.py uses.
"""

from __future__ import annotations

import ctypes
import itertools
import queue
import threading
import time
import weakref
from types import SimpleNamespace

import numpy as np

LIMIT_S = 20
TYPES = {
    "UINT8": np.uint8,
    "INT8": np.int8,
    "INT32": np.int32,
    "INT64": np.int64,
    "FLOAT16": np.float16,
    "FLOAT32": np.float32,
    "FLOAT64": np.float64,
    "BFLOAT16": None,
}
OPS = {"SUM": np.add, "MAX": np.maximum, "MIN": np.minimum}
STREAMS: dict[int, Stream] = {}
EVENTS: weakref.WeakValueDictionary[int, Event] = weakref.WeakValueDictionary()
FAILURE = [0]  # the error that a device has come to, as cudaEventQuery returns it
LOCAL = threading.local()
NUMBERS = itertools.count(1)


class NcclError(RuntimeError):
    """As CuPy's."""


class Stream:
    at_once = False

    def __init__(self, non_blocking: bool = False):
        self.ptr = next(NUMBERS)
        STREAMS[self.ptr] = self
        self.work: list = []  # functions that return whether they have ended

    def run(self) -> bool:
        while self.work and self.work[0]():
            self.work.pop(0)
        return not self.work

    def wait_event(self, event: Event) -> None:
        """Wait here: what is put on this stream later must not run before."""
        limit = time.monotonic() + LIMIT_S
        while not event.done:
            assert time.monotonic() < limit, "an event that never comes"
            time.sleep(0.0005)


class HostStream(Stream):
    """The stream that a rank computes on: the CPU has done what was launched. Torch's default one, whose address is 0: it is the current device's."""

    at_once = True
    device = 1

    def wait_event(self, event: Event) -> None:
        assert current_device() == self.device, "another device's stream waits"
        super().wait_event(event)


class Event:
    def __init__(self, block: bool = False, disable_timing: bool = False):
        self.has_come, self.stream, self.ptr = True, None, next(NUMBERS)
        EVENTS[self.ptr] = self

    def record(self, stream: Stream) -> None:
        assert not stream.at_once or current_device() == stream.device, "an event of another device's stream"

        def come():
            self.has_come = True
            return True

        self.has_come, self.stream = stream.at_once, stream
        if not stream.at_once:
            stream.work.append(come)

    @property
    def done(self) -> bool:
        if not self.has_come:
            self.stream.run()
        return self.has_come


class Device:
    def __init__(self, number: int):
        self.number = number

    def __enter__(self):
        self.before = current_device()
        LOCAL.device = self.number
        return self

    def __exit__(self, *_):
        LOCAL.device = self.before


def current_device() -> int:
    return getattr(LOCAL, "device", 0)


def _event_query(event: int) -> int:
    return FAILURE[0] or (0 if EVENTS[event].done else 600)


class Group:
    """What the ranks of one communicator share."""

    def __init__(self, size: int):
        self.size = size
        self.boxes = {pair: queue.Queue() for pair in itertools.product(range(size), repeat=2)}
        self.meetings: dict[tuple, dict[int, object]] = {}
        self.lock = threading.Lock()

    def meet(self, number: tuple, rank: int, value) -> dict | None:
        """Leave a value; return those of all ranks when all have come."""
        with self.lock:
            found = self.meetings.setdefault(number, {})
            found.setdefault(rank, value)
            return found if len(found) == self.size else None


GROUPS: dict[object, Group] = {}
LOCK = threading.Lock()


def group_of(key, size: int) -> Group:
    with LOCK:
        return GROUPS.setdefault(key, Group(size))


class NcclCommunicator:
    def __init__(self, size: int, unique_id: bytes, rank: int):
        assert len(unique_id) == 128
        self._join(bytes(unique_id), size, rank)

    def _join(self, key, size: int, rank: int) -> None:
        self.key, self.size, self.rank, self.calls = key, size, rank, 0
        self.group = group_of(key, size)
        self.is_aborted = False

    def send(self, buffer: int, count: int, datatype: str, peer: int, stream: int) -> None:
        assert datatype == "UINT8" and peer != self.rank

        def run():
            self.group.boxes[self.rank, peer].put(ctypes.string_at(buffer, count))
            return True

        LOCAL.sends.append((stream, run))

    def recv(self, buffer: int, count: int, datatype: str, peer: int, stream: int) -> None:
        def run():
            try:
                data = self.group.boxes[peer, self.rank].get_nowait()
            except queue.Empty:
                return False
            assert len(data) == count, f"rank {peer} sends {len(data)} bytes to rank {self.rank}, which expects {count}"
            ctypes.memmove(buffer, data, count)
            return True

        LOCAL.recvs.append((stream, run))

    def allReduce(self, send: int, recv: int, count: int, datatype: str, op: str, stream: int) -> None:
        array = _array(send, count, TYPES[datatype])
        self.calls += 1
        number = ("reduce", self.calls)

        def run():
            met = self.group.meet(number, self.rank, array.copy())
            if met is None:
                return False
            total = met[0].copy()
            for rank in range(1, self.size):
                OPS[op](total, met[rank], out=total)
            _array(recv, count, TYPES[datatype])[:] = total
            return True

        STREAMS[stream].work.append(run)

    def bcast(self, buffer: int, count: int, datatype: str, root: int, stream: int) -> None:
        array = _array(buffer, count, TYPES[datatype])
        self.calls += 1
        number = ("bcast", self.calls)

        def run():
            met = self.group.meet(number, self.rank, array.copy())
            if met is None:
                return False
            array[:] = met[root]
            return True

        STREAMS[stream].work.append(run)

    def commSplit(self, color: int, key: int):
        self.calls += 1
        limit = time.monotonic() + LIMIT_S
        while (met := self.group.meet(("split", self.calls), self.rank, (color, key))) is None:
            assert time.monotonic() < limit
            time.sleep(0.0005)
        if color < 0:
            return None
        members = sorted((k, rank) for rank, (c, k) in met.items() if c == color)
        ranks = [rank for _, rank in members]
        part = NcclCommunicator.__new__(NcclCommunicator)
        part._join((self.key, self.calls, color), len(ranks), ranks.index(self.rank))
        return part

    def check_async_error(self) -> None:
        if self.is_aborted:
            raise NcclError("aborted")

    def abort(self) -> None:
        self.is_aborted = True

    def destroy(self) -> None:
        self.is_aborted = True


def _array(address: int, count: int, kind) -> np.ndarray:
    return np.frombuffer((ctypes.c_char * (count * np.dtype(kind).itemsize)).from_address(address), kind)


def _group_start() -> None:
    LOCAL.sends, LOCAL.recvs = [], []


def _group_end() -> None:
    for stream, run in LOCAL.sends + LOCAL.recvs:  # a group runs as one: no send waits for a receive
        STREAMS[stream].work.append(run)


def _memcpy(to: int, start: int, count: int, kind: int, stream: int) -> None:
    assert kind == 3

    def run():
        ctypes.memmove(to, start, count)
        return True

    STREAMS[stream].work.append(run)


nccl = SimpleNamespace(
    available=True, NcclError=NcclError, NcclCommunicator=NcclCommunicator,
    get_unique_id=lambda: np.random.default_rng(next(NUMBERS)).bytes(128), groupStart=_group_start, groupEnd=_group_end,
    **{f"NCCL_{name}": name for name in (*TYPES, *OPS)},
)  # fmt: skip
cuda = SimpleNamespace(
    Device=Device,
    Stream=Stream,
    Event=Event,
    nccl=nccl,
    runtime=SimpleNamespace(
        memcpyAsync=_memcpy, eventQuery=_event_query, CUDARuntimeError=lambda status: RuntimeError(f"error {status}")
    ),
)
