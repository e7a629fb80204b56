"""CUDA kernels on the CPU: the .cu sources compiled by the host's C++ compiler and run fiber by fiber.

    kernels = emulated_kernels(instances)            # CudaKernels that work on CPU tensors
    monkeypatch.setattr(backend, "HOST", kernels)    # then all of spgnn runs on them

See spmm/emulated_cuda.h for what is checked. Instances that were not named are compiled when first launched.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch

from spgnn.spmm.kernels.cuda.kernels import CudaKernels
from spgnn.spmm.kernels.cuda.launcher import source_text

HEADER = Path(__file__).parent / "spmm" / "emulated_cuda.h"
CACHE = Path(__file__).parents[1] / "build" / "emulated_cuda"  # which git ignores
FLAGS = ["-O1", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "-w"]


class EmulatedLauncher:
    """Launches on the CPU. order: of the threads in a block, 0 ascending, 1 descending, above shuffled.

    buffers: (begin, end) of the memory that kernels may touch; None: alignment alone is checked.
    """

    def __init__(self, order: int = 0):
        self.order = order
        self.names: list[str] = []  # of all launches, one after the other
        self.buffers: list[tuple[int, int]] | None = None
        self.wanted: list[tuple[str, str]] | None = None  # where launches are only noted
        self._libraries: dict[tuple[str, str], tuple[ctypes.CDLL, int]] = {}
        self._lock = threading.Lock()  # ranks that are threads share the emulator's one block

    def load(self, source: str, names: Iterable[str]) -> None:
        """Compile these instances of a source in one library, unless a library of them is in the cache."""
        wanted = sorted(set(names) - {name for s, name in self._libraries if s == source})
        if wanted:
            library = ctypes.CDLL(str(_built(source, wanted)))
            library.launch.restype = ctypes.c_char_p
            for name in wanted:
                self._libraries[source, name] = (library, library.find(name.encode()))

    def compile_for(self, run) -> None:
        """Compile together what run() launches, and launch nothing."""
        self.wanted = []
        run()
        wanted, self.wanted = self.wanted, None
        for source, _ in wanted:
            self.load(source, [name for s, name in wanted if s == source])

    def launch(self, source, name, grid, block, args) -> None:
        if self.wanted is not None:
            self.wanted.append((source, name))
            return
        with self._lock:
            if (source, name) not in self._libraries:
                self.load(source, _siblings(name))
            library, number = self._libraries[source, name]
            assert grid[0] < 2**31 and grid[1] < 2**16 and block[0] * block[1] <= 256, (name, grid, block)
            for i, arg in enumerate(args):
                assert arg.itemsize == library.argument(number, i), f"{name}: argument {i} is {arg.dtype}"
            assert library.argument(number, len(args)) == 0, f"{name} takes more than {len(args)} arguments"
            for begin, end in self.buffers if self.buffers is not None else [(0, 2**63)]:
                library.allow(ctypes.c_uint64(begin), ctypes.c_uint64(end))
            values = [np.array([arg]) for arg in args]
            pointers = (ctypes.c_void_p * len(args))(*(value.ctypes.data for value in values))
            self.names.append(name)
            error = library.launch(number, *grid, *block, pointers, ctypes.c_uint64(self.order))
        if error:
            raise AssertionError(f"{name}: {error.decode()}")


# Of the passes between products and the exchange: few, so all at once.
T, S, I = ("float", "double"), ("float", "double", "bfloat16"), ("int", "long long")
PASSES = {
    "dense": [f"{k}<{s}>" for k in ("mask_sum", "drop") for s in S]
    + [f"{k}<{t}>" for k in ("add_chunks", "softmax_xent") for t in T]
    + [f"drop_csr<{t}, {i}>" for t in T for i in I]
    + ["finish<bfloat16, bfloat16>", "finish<bfloat16, float>", "finish<float, float>"],
    "wire": [f"{k}<{s}>" for k in ("encode", "decode") for s in S],
    "spmm": [f"take_rows<{w}>" for w in ("uint4", "uint2", "u32", "u16", "u8")],
}


def emulated_kernels(order: int = 0) -> CudaKernels:
    """Return CudaKernels on CPU tensors; skip the test where there is no C++ compiler."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile the .cu sources for the CPU")
    kernels = CudaKernels(torch.device("cpu"), EmulatedLauncher(order))
    for source, names in PASSES.items():
        kernels.launcher.load(source, names)
    return kernels


def _siblings(name: str) -> list[str]:
    """The instances that are asked for beside this one, with and without weights, for warps and for groups of lanes."""
    kernel, _, rest = name.partition("<")
    if kernel != "spmm_items":
        return [name]
    *kind, V, G, _, NV, _ = rest.removesuffix(">").split(", ")
    return [
        f"{kernel}<{', '.join([*kind, V, G, E, NV, w])}>" for E in {"1", str(32 // int(G))} for w in ("true", "false")
    ]


def _built(source: str, names: list[str]) -> Path:
    table = ",\n".join(f"EMULATED_KERNEL({name})" for name in names)
    text = f'#include "{HEADER}"\n{source_text(source)}\nEMULATED_KERNELS({table})\n'
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
