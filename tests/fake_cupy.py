"""CuPy 14 for ranks that are threads, on the memory of the CPU: streams, events, NCCL and the compiler, as spgnn calls them.

What is put on a stream runs when someone waits for it or asks whether it has ended, never before: a result that is read
without waiting shows. LOG has what the launcher does: devices and streams that it enters, compilations and launches.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import queue
import sys
import threading
import time
import weakref
from collections import defaultdict
from types import SimpleNamespace

import numpy as np

LIMIT_S = 20
TYPES = {name: np.dtype(name.lower()) for name in ("UINT8", "INT8", "INT32", "INT64", "FLOAT16", "FLOAT32", "FLOAT64")}
OPS = {"SUM": np.add, "MAX": np.maximum, "MIN": np.minimum}
STREAMS: dict[int, Stream] = {}
EVENTS: weakref.WeakValueDictionary[int, Event] = weakref.WeakValueDictionary()
FAILURE = [0]  # the error that a device has come to, as cudaEventQuery returns it
LOCAL, LOCK, NUMBERS = threading.local(), threading.Lock(), itertools.count(1)
MEETINGS: dict[tuple, dict] = defaultdict(dict)  # (communicator, call) -> rank -> value
BOXES: dict[tuple, queue.Queue] = defaultdict(queue.Queue)  # (communicator, sender, receiver) -> messages
LOG: list = []


def install(monkeypatch) -> None:
    """Let `import cupy` find this module."""
    LOG.clear()
    for name, module in (("cupy", sys.modules[__name__]), ("cupy.cuda", cuda)):
        monkeypatch.setitem(sys.modules, name, module)


def within_limit(value):
    """Return value(), asked until it is something."""
    limit = time.monotonic() + LIMIT_S
    while (found := value()) in (None, False):
        assert time.monotonic() < limit, "waits for what never comes"
        time.sleep(0.0005)
    return found


class NcclError(RuntimeError):
    """As CuPy's."""


class CompileException(Exception):
    """As CuPy's."""


class Stream:
    at_once = False

    def __init__(self, non_blocking: bool = False):
        self.ptr = next(NUMBERS)
        STREAMS[self.ptr] = self
        self.work: list = []  # functions that return whether they have ended

    @staticmethod
    def from_external(foreign):
        return Entered(f"stream {foreign.__cuda_stream__()[1]}")

    def run(self) -> None:
        while self.work and self.work[0]():
            self.work.pop(0)

    def wait_event(self, event: Event) -> None:
        """Wait here: what is put on this stream later must not run before."""
        within_limit(lambda: event.done)


class HostStream(Stream):
    """The stream that a rank computes on: the CPU has done what was launched.

    Torch's default one, whose address is 0: it is the current device's.
    """

    at_once, device = True, 1

    def wait_event(self, event: Event) -> None:
        assert current_device() == self.device, "another device's stream waits"
        super().wait_event(event)


class Event:
    def __init__(self, block: bool = False, disable_timing: bool = False):
        self.has_come, self.stream, self.ptr = True, None, next(NUMBERS)
        EVENTS[self.ptr] = self

    def record(self, stream: Stream) -> None:
        assert not stream.at_once or current_device() == stream.device, "an event of another device's stream"
        self.has_come, self.stream = stream.at_once, stream
        if not stream.at_once:
            stream.work.append(lambda: setattr(self, "has_come", True) is None)

    @property
    def done(self) -> bool:
        if not self.has_come:
            self.stream.run()
        return self.has_come


class Entered:
    """A device or stream; what enters it is logged."""

    def __init__(self, what: str):
        self.what = what

    def __enter__(self):
        LOG.append(self.what)

    def __exit__(self, *_):
        LOG.append(f"left {self.what}")


class Device(Entered):
    def __init__(self, number: int):
        super().__init__(f"device {number}")
        self.number = number

    def __enter__(self):
        super().__enter__()
        self.before, LOCAL.device = current_device(), self.number

    def __exit__(self, *_):
        super().__exit__()
        LOCAL.device = self.before


def current_device() -> int:
    return getattr(LOCAL, "device", 0)


class RawModule:
    """A module of one kernel; names with `wrong` or `header` do not compile."""

    def __init__(self, code, options, name_expressions):
        assert "#include" not in code and "#pragma once" not in code and "-std=c++17" in options
        self.names = name_expressions
        LOG.append(f"compiled {name_expressions[0]}")

    def get_function(self, name):
        if "wrong" in name:
            raise CompileException("no such template\nand much more")
        if "header" in name:
            raise RuntimeError("Failed to find CUDA headers")
        assert name in self.names
        return lambda grid, block, args: LOG.append((name, grid, block, [type(arg).__name__ for arg in args]))


class NcclCommunicator:
    def __init__(self, size: int, unique_id: bytes, rank: int):
        assert len(unique_id) == 128
        self._join(bytes(unique_id), size, rank)

    def _join(self, key, size: int, rank: int) -> None:
        self.key, self.size, self.rank, self.calls, self.is_aborted = key, size, rank, 0, False

    def _met(self, number: int, value) -> list | None:
        """Leave a value; return those of all ranks when all have come."""
        with LOCK:
            found = MEETINGS[self.key, number]
            found.setdefault(self.rank, value)
            return [found[rank] for rank in range(self.size)] if len(found) == self.size else None

    def _together(self, address: int, count: int, kind: np.dtype, stream: int, combine) -> None:
        """Put on a stream: x = combine(x of all ranks)."""
        array, self.calls = _array(address, count, kind), self.calls + 1

        def run(number=self.calls):
            met = self._met(number, array.copy())
            if met is not None:
                array[:] = combine(met)
            return met is not None

        STREAMS[stream].work.append(run)

    def allReduce(self, send: int, recv: int, count: int, datatype: str, op: str, stream: int) -> None:
        assert send == recv
        self._together(send, count, TYPES[datatype], stream, lambda met: functools.reduce(OPS[op], met))

    def bcast(self, buffer: int, count: int, datatype: str, root: int, stream: int) -> None:
        self._together(buffer, count, TYPES[datatype], stream, lambda met: met[root])

    def _box(self, sender: int, receiver: int) -> queue.Queue:
        with LOCK:
            return BOXES[self.key, sender, receiver]

    def send(self, buffer: int, count: int, datatype: str, peer: int, stream: int) -> None:
        assert datatype == "UINT8" and peer != self.rank

        def run():
            self._box(self.rank, peer).put(ctypes.string_at(buffer, count))
            return True

        LOCAL.sends.append((stream, run))

    def recv(self, buffer: int, count: int, datatype: str, peer: int, stream: int) -> None:
        def run():
            box = self._box(peer, self.rank)
            if box.empty():
                return False
            data = box.get_nowait()
            assert len(data) == count, f"rank {peer} sends {len(data)} bytes to rank {self.rank}, which expects {count}"
            ctypes.memmove(buffer, data, count)
            return True

        LOCAL.recvs.append((stream, run))

    def commSplit(self, color: int, key: int):
        self.calls += 1
        met = within_limit(lambda: self._met(self.calls, (color, key)))
        ranks = [rank for _, rank in sorted((k, rank) for rank, (c, k) in enumerate(met) if c == color)]
        part = NcclCommunicator.__new__(NcclCommunicator)
        part._join((self.key, self.calls, color), len(ranks), ranks.index(self.rank))
        return part

    def check_async_error(self) -> None:
        if self.is_aborted:
            raise NcclError("aborted")

    def abort(self) -> None:
        self.is_aborted = True


def _array(address: int, count: int, kind: np.dtype) -> np.ndarray:
    return np.frombuffer((ctypes.c_char * (count * kind.itemsize)).from_address(address), kind)


def _group_start() -> None:
    LOCAL.sends, LOCAL.recvs = [], []


def _group_end() -> None:
    for stream, run in LOCAL.sends + LOCAL.recvs:  # a group runs as one: no send waits for a receive
        STREAMS[stream].work.append(run)


def _memcpy(to: int, start: int, count: int, kind: int, stream: int) -> None:
    assert kind == 3
    STREAMS[stream].work.append(lambda: ctypes.memmove(to, start, count) is not None)


nccl = SimpleNamespace(
    available=True, NcclError=NcclError, NcclCommunicator=NcclCommunicator,
    get_unique_id=lambda: np.random.default_rng(next(NUMBERS)).bytes(128), groupStart=_group_start, groupEnd=_group_end,
    **{f"NCCL_{name}": name for name in (*TYPES, "BFLOAT16", *OPS)},
)  # fmt: skip
runtime = SimpleNamespace(
    memcpyAsync=_memcpy,
    eventQuery=lambda event: FAILURE[0] or (0 if EVENTS[event].done else 600),
    CUDARuntimeError=lambda status: RuntimeError(f"error {status}"),
)
compiler = SimpleNamespace(CompileException=CompileException)
cuda = SimpleNamespace(Device=Device, Stream=Stream, Event=Event, nccl=nccl, runtime=runtime, compiler=compiler)
