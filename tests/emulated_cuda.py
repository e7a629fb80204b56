"""CUDA kernels on the CPU: the .cu sources compiled by the host's C++ compiler and run fiber by fiber.

    kernels = emulated_kernels()                     # CudaKernels that work on CPU tensors
    monkeypatch.setattr(backend, "HOST", kernels)    # then all of spgnn runs on them

See spmm/emulated_cuda.cpp for what is checked. An instance is compiled when first launched, in 0.1 s, and kept in build/.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from spgnn.spmm.kernels.cuda.kernels import CudaKernels
from spgnn.spmm.kernels.cuda.launcher import source_text

HEADER, CORE = (Path(__file__).parent / "spmm" / f"emulated_cuda.{ending}" for ending in ("h", "cpp"))
CACHE = Path(__file__).parents[1] / "build" / "emulated_cuda"  # which git ignores
FLAGS = ["-O1", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-w"]


class Kernel(ctypes.Structure):
    """A template instance; sizes: of its arguments in bytes."""

    _fields_ = [("body", ctypes.c_void_p), ("sizes", ctypes.c_char_p)]


@functools.cache
def _core() -> ctypes.CDLL:
    """What runs the kernels, whose libraries find it as their own."""
    core = ctypes.CDLL(
        str(_built("core", CORE.read_text().replace(f'"{HEADER.name}"', f'"{HEADER}"'))), ctypes.RTLD_GLOBAL
    )
    core.launch.restype = ctypes.c_char_p
    return core


class EmulatedLauncher:
    """Launches on the CPU. order: of the threads in a block, 0 ascending, 1 descending, above shuffled.

    buffers: (begin, end) of the memory that kernels may touch; None: alignment alone is checked.
    """

    _lock = threading.Lock()  # ranks that are threads share the emulator's one block

    def __init__(self, order: int = 0):
        self.order = order
        self.names: list[str] = []  # of all launches, one after the other
        self.buffers: list[tuple[int, int]] | None = None
        self._kernels: dict[tuple[str, str], Kernel] = {}

    def _kernel(self, source: str, name: str) -> Kernel:
        if (source, name) not in self._kernels:
            _core()
            text = f'#include "{HEADER}"\n{source_text(source)}\nEMULATED_KERNEL({name})\n'
            self._kernels[source, name] = Kernel.in_dll(ctypes.CDLL(str(_built(source, text))), "kernel")
        return self._kernels[source, name]

    def launch(self, source, name, grid, block, args) -> None:
        with self._lock:
            kernel, core = self._kernel(source, name), _core()
            assert grid[0] < 2**31 and grid[1] < 2**16 and block[0] * block[1] <= 256, (name, grid, block)
            assert bytes(arg.itemsize for arg in args) == kernel.sizes, f"{name}: {[arg.dtype for arg in args]}"
            for begin, end in self.buffers if self.buffers is not None else [(0, 2**63)]:
                core.allow(ctypes.c_uint64(begin), ctypes.c_uint64(end))
            values = [np.array([arg]) for arg in args]
            pointers = (ctypes.c_void_p * len(args))(*(value.ctypes.data for value in values))
            self.names.append(name)
            error = core.launch(ctypes.c_void_p(kernel.body), *grid, *block, pointers, ctypes.c_uint64(self.order))
        if error:
            raise AssertionError(f"{name}: {error.decode()}")


def emulated_kernels(order: int = 0) -> CudaKernels:
    """Return CudaKernels on CPU tensors; skip the test where there is no C++ compiler."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile the .cu sources for the CPU")
    return CudaKernels(torch.device("cpu"), EmulatedLauncher(order))


def _built(source: str, text: str) -> Path:
    """Return the library of a C++ text, from the cache if it is there."""
    key = hashlib.sha256((text + HEADER.read_text() + " ".join(FLAGS)).encode()).hexdigest()[:24]
    library = CACHE / f"{source}-{key}.so"
    if not library.exists():
        CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            code, made = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
            code.write_text(text)
            done = subprocess.run(["g++", *FLAGS, str(code), "-o", str(made)], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[:4000]
            os.replace(made, library)
    return library
