"""A device that is not the CPU, without one: tensors of `elsewhere:0` hold tensors of the CPU, and mixing the two raises as CUDA does.

    python tests/separate_device.py        # trains on it in all ways; a JSON line a case: its name, or what went wrong

torch's backend for Python devices is taken, which stays registered in the process: hence a process of its own. Kernels
are the emulated ones, which read and write the held tensors by their addresses; ranks share them and stage rows through
the host.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import traceback

import numpy as np
import torch
from emulated_cuda import emulated_kernels
from graphs import random_graph
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import spgnn
from spgnn.dist import SelfCommunicator, run_threads
from spgnn.dist.device.device_communicator import DeviceCommunicator
from spgnn.dist.device.staged import StagedTransport
from spgnn.layers import GCN, Stack
from spgnn.spmm import autograd
from spgnn.spmm.kernels import backend
from spgnn.spmm.kernels.cuda.placement import Placement

NAME = "elsewhere"
_setup_privateuseone_for_python_backend(NAME)
DEVICE = torch.device(NAME, 0)
BETWEEN_DEVICES = ("_to_copy", "copy_")


class Elsewhere(torch.Tensor):
    """A tensor of the device; `held` is its memory."""

    @staticmethod
    def __new__(cls, held):
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
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
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    ours = [t for t in tensors if isinstance(t, Elsewhere)]
    if ours and name not in BETWEEN_DEVICES and any(t.dim() for t in tensors if not isinstance(t, Elsewhere)):
        raise RuntimeError(
            f"expected all tensors to be on the same device: {function} has {[(type(t).__name__, tuple(t.shape)) for t in tensors]}"
        )
    held_args, held_kwargs = tree_map(lambda x: x.held if isinstance(x, Elsewhere) else x, (args, kwargs))
    is_ours = (
        isinstance(args[0], Elsewhere)
        if name == "copy_"
        else bool(ours)
        if device is None
        else torch.device(device).type == NAME
    )
    held_kwargs |= {"device": torch.device("cpu")} if device is not None and torch.device(device).type == NAME else {}
    held_kwargs |= {"pin_memory": False} if kwargs.get("pin_memory") else {}
    result = function(*held_args, **held_kwargs)
    if not is_ours or name == "_local_scalar_dense":
        return result
    known = {id(t.held): t for t in ours}  # what works in place returns the tensor that it got
    return tree_map(
        lambda x: (known[id(x)] if id(x) in known else Elsewhere(x)) if isinstance(x, torch.Tensor) else x, result
    )


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
    for module in (
        "spgnn.layers.stack",
        "spgnn.training.scorer",
        "spgnn.training.steps.full",
        autograd.__name__,
    ):  # torch's autocast knows no such device
        vars(importlib.import_module(module))["mixed_precision"] = lambda A: contextlib.nullcontext()


def train(
    comm,
    device,
    *,
    dtype=torch.float64,
    sparse=False,
    dropout=0.0,
    norm=None,
    residual=False,
    prune="auto",
    optimizer="adam",
    owner=None,
    **options,
):
    """Return losses, logits, bytes sent and predicted of four epochs."""
    graph = random_graph(n=60, edges=400, f=9, sparse=sparse)
    partition = None if owner is None else spgnn.partition.partition_of(graph, owner, comm.size)
    with OnDevice() if device == "cuda" else contextlib.nullcontext():
        dgraph = spgnn.distribute(
            graph, comm, partition=partition, method="random", dtype=dtype, keep=dropout == 0, device=device, **options
        )
        model = Stack(
            GCN(9, 9, act="relu", norm=norm, residual=residual), GCN(9, 8, act="relu"), GCN(8, 3), dropout=dropout
        )
        history = spgnn.train(model, dgraph, epochs=4, prune=prune, lr=0.05, optimizer=optimizer)
        with torch.no_grad():
            logits = dgraph.collect(model.eval()(dgraph.A, dgraph.X).double().cpu().numpy())
    assert (dgraph.A.device == DEVICE) == (device == "cuda")
    return [record["loss"] for record in history.records], logits, history.bytes_sent, history.bytes_predicted


ONE_OWNS_LITTLE = np.repeat(np.array([0, 1, 2], np.int32), (30, 29, 1))
CASES = [  # ranks, options, relative difference of losses
    (1, {"norm": "layer", "residual": True, "optimizer": "sgd"}, 1e-11),
    (1, {"prune": "always", "sparse": True, "dropout": 0.3}, 1e-11),
    (1, {"dtype": torch.bfloat16, "sparse": True, "residual": True}, 2e-2),
    (4, {"scheme": "cover", "replication": 2, "dropout": 0.3}, 1e-11),
    (2, {"scheme": "broadcast", "prune": "always"}, 1e-11),
    (2, {"scheme": "columns", "dtype": torch.float32, "wire": "bfloat16", "wire_gradients": "int8"}, 1e-4),
    (3, {"scheme": "columns", "owner": ONE_OWNS_LITTLE}, 1e-11),
]


def check(ranks: int, options: dict, tolerance: float) -> str:
    """Return what differs between a training on the device and on the CPU; nothing where none does."""
    try:
        expected, got = (
            run(ranks, lambda comm, device=device: train(comm, device, **options)) for device in ("cpu", "cuda")
        )
        np.testing.assert_allclose(got[0], expected[0], rtol=tolerance)
        np.testing.assert_allclose(got[1], expected[1], rtol=10 * tolerance, atol=10 * tolerance)
        assert got[2] == expected[2] == got[3], "bytes differ"
    except Exception:
        return traceback.format_exc()
    return ""


def run(ranks: int, body):
    return body(SelfCommunicator()) if ranks == 1 else run_threads(ranks, body, timeout=300)[0]


if __name__ == "__main__":
    install()
    for case in CASES:
        print(json.dumps([f"{case[0]} ranks, {case[1]}", check(*case)]), flush=True)
    sys.exit()
