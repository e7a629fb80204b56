"""The device of a rank, and the policy by which everything on it is ordered.

Streams. All products, copies and torch's own operations of a rank run on one stream: torch's current one
of its device, onto which CuPy's kernels are launched by its address. Exchanges run on a second stream of
their own (dist/device). An exchange that starts waits there for an event of the first
stream, behind which the rows are packed; a request that is waited for makes the first stream wait for an
event of the second, and the host continues. So the product with the own block, launched in between, runs
beside the exchange.

Buffers. A request holds what it sends and receives until it was waited for. What is freed after that goes
back to torch's allocator for the first stream, and whoever gets it next is ordered behind the exchange.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ....dist import Communicator
from ....dist.device.device_communicator import DeviceCommunicator, StagedTransport
from ....errors import ResourceError, UsageError, agree, nearest
from ....machine import host_id
from .launcher import CurrentStream

INSTALL = "pip install 'spgnn[gpu]' and a torch built for CUDA"


class CudaDriver:
    """CUDA as torch and CuPy find it."""

    def problem(self) -> str | None:
        """Return why no device can be used, and the fix; None where one can."""
        if torch.version.cuda is None:
            return f"this torch ({torch.__version__}) is built without CUDA: {INSTALL}"
        if not torch.cuda.is_available():
            return f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds no device: is there one, is its driver as new, does CUDA_VISIBLE_DEVICES hide it? nvidia-smi tells"
        try:
            import cupy
        except ImportError as error:
            return f"CuPy, which compiles the kernels, cannot be imported ({' '.join(str(error).split())}): pip install cupy-cuda{torch.version.cuda.split('.')[0]}x"
        major = cupy.cuda.runtime.runtimeGetVersion() // 1000
        if major != int(torch.version.cuda.split(".")[0]):
            return f"CuPy is built for CUDA {major}, torch for CUDA {torch.version.cuda}: pip install cupy-cuda{torch.version.cuda.split('.')[0]}x"
        return None

    def count(self) -> int:
        """Return the devices that this process sees."""
        return torch.cuda.device_count()

    def identity(self, number: int) -> str:
        """Return what tells a device from the others of its host, whatever a process sees of them."""
        import cupy

        return cupy.cuda.Device(number).pci_bus_id

    def use(self, number: int) -> None:
        """Make a device this thread's current one; else what CuPy restores and torch opens would be device 0, by every rank."""
        torch.cuda.set_device(number)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a rank computes: its device, and how many ranks of its host share that device."""

    device: torch.device
    sharers: int
    shares_anywhere: bool  # whether some device of the job has several ranks: then NCCL cannot be used


def place(comm: Communicator, device: str, driver: CudaDriver | None = None) -> Placement:
    """Return the placement of this rank: for cuda, device (rank on its host) mod (devices of the host). Collective.

    Raises: UsageError for another name than cpu or cuda; ResourceError with the fix where there is no device.
    """
    if device not in ("cpu", "cuda"):
        raise UsageError(f"device {device!r} is not known; expected cpu or cuda")
    if device == "cpu":
        return Placement(torch.device("cpu"), 1, False)
    driver = CudaDriver() if driver is None else driver
    problem = driver.problem()
    agree(comm, ResourceError(f"--device cuda: {problem}") if problem else None)
    number = number_on(comm.all_gather_json([host_id(), driver.count()]), comm.rank)
    driver.use(number)
    taken = [tuple(theirs) for theirs in comm.all_gather_json([host_id(), driver.identity(number)])]
    return Placement(torch.device("cuda", number), taken.count(taken[comm.rank]), len(set(taken)) < len(taken))


def number_on(everywhere: Sequence[tuple[str, int]], rank: int) -> int:
    """Return the number of a rank's device among those that it sees, from (host, devices that it sees) of each rank.

    It is the rank's place among the ranks of its host, modulo the devices: one that sees its own device alone,
    as launchers set CUDA_VISIBLE_DEVICES, takes that.
    """
    host, count = everywhere[rank]
    before = sum(1 for theirs, _ in everywhere[:rank] if theirs == host)
    return before % count


TRANSPORTS = ("auto", "nccl", "staged")


def device_communicator(comm: Communicator, placement: Placement, transport: str = "") -> Communicator:
    """Return comm, or what also moves tensors of the device. Collective.

    Args: transport  nccl, staged, or auto; default: SPGNN_TRANSPORT, auto where that is not set. auto takes NCCL where
                     each rank has a device of its own and all find it, else the memory of the host.
    """
    if placement.device.type == "cpu":
        return comm
    name = transport or os.environ.get("SPGNN_TRANSPORT", "auto")
    error = (
        None
        if name in TRANSPORTS
        else UsageError(f"SPGNN_TRANSPORT = {name!r} is not known{nearest(name, TRANSPORTS)}")
    )
    if name == "nccl" and placement.shares_anywhere:
        error = UsageError(
            "SPGNN_TRANSPORT = nccl: NCCL needs a device for each rank, and some ranks share one; use as many ranks as devices, or staged"
        )
    agree(comm, error)
    if comm.size == 1:
        return DeviceCommunicator(comm, StagedTransport(comm))
    if name == "auto":
        from cupy.cuda import nccl

        found = comm.all_gather_json(bool(nccl.available) and not placement.shares_anywhere)
        name = "nccl" if all(found) else "staged"
    if name == "nccl":
        from ....dist.device.nccl import NcclTransport

        return DeviceCommunicator(comm, NcclTransport(comm, placement.device.index, CurrentStream(placement.device)))
    return DeviceCommunicator(comm, StagedTransport(comm))
