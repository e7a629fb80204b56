"""GlooCommunicator: the ranks of torchrun, by point-to-point messages of torch's gloo; the only file of dist that imports torch.

torch.distributed's default group is left to its user. Splits use the connections of all ranks: messages are
told apart by the number of the collective among those that both ranks take part in.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import numpy as np
import torch
from torch import distributed

from ..errors import LaunchError, RankError
from .communicator import Communicator
from .job.background import BackgroundThread
from .job.protect import InJob, JobLauncher, JobMember
from .swap import Link, Swap, SwapCommunicator
from .traffic import Traffic

CONNECT_S = 1800.0  # how long the first rank waits for the last: torch's own limit
NEVER = timedelta(days=365)  # a rank that waits is the watchdog's to judge
_TAGS, _STAGES = 2**29, 4  # of messages: the number of the collective, and the swap inside it
LONGEST = 4096  # bytes of a message
ARRIVE_S = 3.0  # how long the first message of each rank may take


def connect_world(job: JobMember, launcher: JobLauncher) -> GlooCommunicator:
    """Return the communicator of all ranks, registered with job. Collective."""
    rank, size = launcher.rank, launcher.size
    comm = GlooCommunicator(rank, size, GlooLink(connections(launcher), range(size)), job=job)
    token = np.frombuffer(secrets.token_bytes(8), np.uint8).copy()
    comm.broadcast(token)
    job.join(rank, token.tobytes().hex(), comm.barrier, [])
    comm.traffic.reset()
    comm.phase = "set-up"
    return comm


@functools.cache
def connections(launcher: JobLauncher) -> Connections:
    """Return the connections of this process, which stay for the next world. Collective."""
    rank, size, limit = launcher.rank, launcher.size, timedelta(seconds=CONNECT_S)
    try:
        store = distributed.PrefixStore("spgnn", next(distributed.rendezvous("env://", rank, size, timeout=limit))[0])
        store.set(f"rank {rank}", "here")
        store.wait([f"rank {q}" for q in range(size)], limit)
        return Connections(distributed.ProcessGroupGloo(store, rank, size, NEVER), rank, size)
    except (RuntimeError, ValueError) as error:
        address = f"MASTER_ADDR={os.environ['MASTER_ADDR']} MASTER_PORT={os.environ['MASTER_PORT']}"
        raise LaunchError(
            f"{launcher.name} started {size} ranks, but rank {rank} cannot connect to the others by {address}: "
            f"{str(error).splitlines()[0]}; GLOO_SOCKET_IFNAME chooses the network card"
        ) from None


class GlooCommunicator(InJob, SwapCommunicator):
    """One rank of torchrun's, or of a split."""

    def __init__(self, rank: int, size: int, link: Link, traffic: Traffic | None = None, job: JobMember | None = None):
        self._job = job
        super().__init__(rank, size, link, traffic)

    def open_channel(self) -> DatagramChannel | None:
        """Return a channel for the watchdogs of these ranks; None where datagrams do not arrive. Collective."""
        return DatagramChannel.connect(self, _own_address())

    def _part(self, rank: int, size: int, link: Link, traffic: Traffic) -> GlooCommunicator:
        part = GlooCommunicator(rank, size, link, traffic, self._job)
        part.phase = self.phase
        return part


class Connections:
    """The connections of this rank to all others, and the thread that makes started collectives, one after the other."""

    def __init__(self, group: distributed.ProcessGroupGloo, rank: int, size: int):
        self.group, self.rank = group, rank
        self.numbers = np.zeros(size, np.int64)  # collectives so far with each rank
        self._started: queue.SimpleQueue[GlooRequest] = queue.SimpleQueue()
        self._thread: BackgroundThread | None = None

    def start(self, request: GlooRequest) -> None:
        """Run a request after those that were started before."""
        if self._thread is None:
            self._thread = BackgroundThread(self._work, "spgnn progress")
            self._thread.start()
        self._started.put(request)

    def _work(self) -> None:
        while True:
            self._started.get().run()


class GlooLink:
    """Swaps bytes with peers, ranks of the job in the order of a communicator."""

    def __init__(self, connections: Connections, peers: Sequence[int] | np.ndarray):
        self._of, self._peers = connections, np.array(peers)

    def open(self) -> Swap:
        numbers = self._of.numbers[self._peers] % _TAGS
        self._of.numbers[self._peers] += 1
        stages = itertools.count()

        def swap(send: Sequence[np.ndarray], recv: Sequence[np.ndarray]) -> None:
            self._swap(send, recv, (numbers * _STAGES + next(stages)).tolist())

        return swap

    def start(self, body: Callable[[], None]) -> GlooRequest:
        request = GlooRequest(body)
        self._of.start(request)
        return request

    def part(self, peers: Sequence[int]) -> GlooLink:
        return GlooLink(self._of, self._peers[peers])

    def _swap(self, send: Sequence[np.ndarray], recv: Sequence[np.ndarray], tags: list[int]) -> None:
        group, own, works = self._of.group, self._of.rank, []
        # pyrefly: ignore[missing-attribute]: torch's stub has neither
        for buffers, call in ((recv, group.recv), (send, group.send)):
            for buffer, peer, tag in zip(buffers, self._peers.tolist(), tags):
                if peer != own and len(buffer):
                    works.append((peer, call([_tensor(buffer)], peer, tag)))
        for peer, work in works:
            try:
                work.wait()
            except RuntimeError as error:
                reason = str(error).splitlines()[0]
                raise RankError(f"rank {own} has lost its connection to rank {peer}: {reason}") from None


class DatagramChannel:
    """Messages over UDP. Never waits.

    Args: sock       bound, and freed by `close`.
          addresses  (size,) of the sockets of all ranks.
          token      of the job: other datagrams are dropped.
    """

    def __init__(self, sock: socket.socket, addresses: list[tuple[str, int]], token: bytes):
        self._socket, self._addresses, self._token = sock, addresses, token

    @classmethod
    def connect(cls, comm: Communicator, host: str) -> DatagramChannel | None:
        """Return the channel of the ranks of comm; None on all if a message of any rank to another is lost. Collective.

        Args: host  the address of this rank that the others reach.
        """
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.bind((host, 0))
        addresses = comm.all_gather_json(sock.getsockname()[:2])
        token = hashlib.sha256(json.dumps(addresses).encode()).digest()
        channel = cls(sock, [tuple(address) for address in addresses], token)
        for rank in range(comm.size):
            channel.send(rank, str(comm.rank).encode())
        missing, end = set(range(comm.size)), time.monotonic() + ARRIVE_S
        while missing and time.monotonic() < end:
            missing -= {int(message) for message in channel.receive()}
            time.sleep(0.001 if missing else 0)
        if all(comm.all_gather_json(not missing)):
            return channel
        sock.close()
        return None

    def send(self, rank: int, message: bytes) -> None:
        """Send; a rank that is stopped receives it later or never."""
        try:
            self._socket.sendto(self._token + message[:LONGEST], self._addresses[rank])
        except OSError:  # full or out of reach: as if it was lost
            return

    def receive(self) -> list[bytes]:
        """Return the messages that have arrived."""
        arrived = []
        while True:
            try:
                message = self._socket.recv(len(self._token) + LONGEST)
            except OSError:  # nothing more
                return arrived
            if message.startswith(self._token):
                arrived.append(message[len(self._token) :])

    def close(self) -> None:
        """Free the socket."""
        self._socket.close()


class GlooRequest:
    """A started collective, made by the thread of Connections."""

    def __init__(self, body: Callable[[], None]):
        self._body: Callable[[], None] | None = body
        self._error: BaseException | None = None
        self._has_ended = threading.Event()
        self.ended_s: float | None = None

    def run(self) -> None:
        """Make it; an error is raised by `wait`."""
        body, self._body = self._body, None
        try:
            if body is not None:
                body()
        except BaseException as error:  # of whatever kind, it is the rank's
            self._error = error
        self.ended_s = time.monotonic()
        self._has_ended.set()

    def test(self) -> bool:
        if self._has_ended.is_set():
            self.wait()
        return self._has_ended.is_set()

    def wait(self) -> None:
        self._has_ended.wait()
        if self._error is not None:
            raise self._error


def _tensor(x: np.ndarray) -> torch.Tensor:
    """Return the tensor of the memory of x; of a copy if x is read-only, which torch warns of."""
    return torch.from_numpy(x if x.flags.writeable else x.copy())


def _own_address() -> str:
    """Return the address by which this host reaches MASTER_ADDR."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    family = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)[0][0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing
        return probe.getsockname()[0]
