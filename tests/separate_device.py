"""A device without one: tensors of `elsewhere:0` hold tensors of the CPU, and mixing the two raises as CUDA does.

    python tests/separate_device.py        # the cases of training/test_cuda_training.py, each compared with the CPU

torch's backend for Python devices is taken, which stays registered in the process: hence a process of its own. Kernels
are the emulated ones, which read and write the held tensors by their addresses; ranks share them and stage rows through
the host.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path

import torch
from emulated_cuda import emulated_kernels
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from spgnn.dist.device.device_communicator import DeviceCommunicator, StagedTransport
from spgnn.spmm.kernels import backend
from spgnn.spmm.kernels.cuda.placement import Placement

NAME = "elsewhere"
_setup_privateuseone_for_python_backend(NAME)
DEVICE = torch.device(NAME, 0)


class Elsewhere(torch.Tensor):
    """A tensor of the device; `held` is its memory."""

    @staticmethod
    def __new__(cls, held):
        layout = dict(strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype, device=DEVICE)
        self = torch.Tensor._make_wrapper_subclass(cls, held.shape, **layout)
        self.held = held
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl

    def data_ptr(self):
        return self.held.data_ptr()

    def numpy(self, *_, **__):
        raise TypeError(f"can't convert {DEVICE} tensor to numpy; use Tensor.cpu()")

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return compute(function, args, kwargs or {})


class OnDevice(TorchDispatchMode):
    """Sees what is made on the device from nothing, such as torch.empty."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return compute(function, args, kwargs or {})


def compute(function, args, kwargs):
    """Do what torch asks on the held tensors; RuntimeError where tensors of both devices meet."""
    name, device = function.overloadpacket.__name__, kwargs.get("device")
    is_to_device = device is not None and torch.device(device).type == NAME
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    ours, others = ([t for t in tensors if isinstance(t, Elsewhere) == is_ours] for is_ours in (True, False))
    if ours and name not in ("_to_copy", "copy_") and any(t.dim() for t in others):
        raise RuntimeError(f"expected all tensors to be on the same device: {function} has {[t.shape for t in others]}")
    if name == "copy_":
        is_ours = isinstance(args[0], Elsewhere)
    else:
        is_ours = bool(ours) if device is None else is_to_device
    held_args, held_kwargs = tree_map(lambda x: x.held if isinstance(x, Elsewhere) else x, (args, kwargs))
    held_kwargs |= {"device": torch.device("cpu")} if is_to_device else {}
    held_kwargs |= {"pin_memory": False} if kwargs.get("pin_memory") else {}
    result = function(*held_args, **held_kwargs)
    if not is_ours or name == "_local_scalar_dense":
        return result
    known = {id(t.held): t for t in ours}  # what works in place returns the tensor that it got
    wrapped = lambda x: known[id(x)] if id(x) in known else Elsewhere(x)
    return tree_map(lambda x: wrapped(x) if isinstance(x, torch.Tensor) else x, result)


def install() -> None:
    """Let `device="cuda"` mean this device."""
    kernels = emulated_kernels()
    kernels.device = DEVICE
    backend._of_device = lambda device: kernels
    distribute = importlib.import_module("spgnn.distgraph.distribute")
    placed, carried = distribute.place, distribute.device_communicator
    distribute.place = lambda comm, device, driver=None: (
        Placement(DEVICE, comm.size, comm.size > 1) if device == "cuda" else placed(comm, device, driver)
    )
    distribute.device_communicator = lambda comm, placement, transport="": (
        DeviceCommunicator(comm, StagedTransport(comm))
        if placement.device == DEVICE
        else carried(comm, placement, transport)
    )
    # Torch's autocast knows no such device.
    for module in ("layers.stack", "training.scorer", "training.steps.full", "spmm.chains.autograd"):
        vars(importlib.import_module(f"spgnn.{module}"))["mixed_precision"] = lambda A: contextlib.nullcontext()
    for name in ("one_by_one", "without_autocast"):
        vars(importlib.import_module("spgnn.spmm.edges.edge_update"))[name] = lambda A: contextlib.nullcontext()


if __name__ == "__main__":
    install()
    sys.path.insert(0, str(Path(__file__).parent / "training"))
    from test_cuda_training import CASES, check

    for case in CASES:
        check(*case, around=OnDevice)
        assert backend._of_device(DEVICE).launcher.names
        print(f"equal: {case}", flush=True)
