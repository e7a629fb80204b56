"""Kernels compiled at run time and launched on torch's current stream.

CuPy compiles with NVRTC, one template instance a module, and keeps the result in its cache on disk
(CUPY_CACHE_DIR, ~/.cupy/kernel_cache; from CuPy 14.2 on for template instances, too): seconds the first time,
milliseconds after that. The sources include no header, but CuPy refuses to compile without those of CUDA.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch

from ....errors import ResourceError

FOLDER = Path(__file__).parent
OPTIONS = ("-std=c++17",)


def source_text(source: str) -> str:
    """Return the text of a .cu with the headers that it includes in their places."""
    text = (FOLDER / f"{source}.cu").read_text(encoding="utf-8")
    header = lambda found: (FOLDER / found[1]).read_text(encoding="utf-8").replace("#pragma once\n", "")
    return re.sub(r'#include "(.*)"\n', header, text)


class CupyLauncher:
    """Launches on one device, on whatever stream is torch's current one there."""

    def __init__(self, device: torch.device):
        import cupy

        self.device, self._cupy = device, cupy
        self._functions: dict[str, Callable] = {}
        self.current = CurrentStream(device)

    def launch(self, source: str, name: str, grid: tuple[int, int], block: tuple[int, int], args: Sequence) -> None:
        """Start the template instance `name` of source.cu; args are NumPy scalars, pointers uint64."""
        with self._cupy.cuda.Device(self.device.index):
            function = self._functions.get(name) or self._compile(source, name)
            with self.current():
                function(grid, block, tuple(args))

    def _compile(self, source: str, name: str):
        try:
            module = self._cupy.RawModule(code=source_text(source), options=OPTIONS, name_expressions=[name])
            self._functions[name] = module.get_function(name)
        except (
            self._cupy.cuda.compiler.CompileException,
            RuntimeError,
        ) as error:  # RuntimeError: CuPy finds no header of CUDA, which it looks for in any case
            raise ResourceError(
                f"{source}.cu: {name} does not compile: {str(error).splitlines()[0]}; see docs/performance.md, or use --device cpu"
            ) from error
        return self._functions[name]


class CurrentStream:
    """Torch's current stream of a device as CuPy's, asked anew at each call."""

    def __init__(self, device: torch.device):
        import cupy

        self.device, self._cupy = device, cupy
        self._streams: dict[int, AbstractContextManager] = {}

    def __call__(self) -> AbstractContextManager:
        pointer = torch.cuda.current_stream(self.device).cuda_stream
        if pointer not in self._streams:
            self._streams[pointer] = self._cupy.cuda.Stream.from_external(_Pointer(pointer))
        return self._streams[pointer]


class _Pointer:
    """A stream by its address, as CuPy takes foreign ones."""

    def __init__(self, pointer: int):
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


NAMES = {torch.float32: "float", torch.float64: "double", torch.bfloat16: "bfloat16", torch.float16: "float16"}
SCALARS = {torch.float32: np.float32, torch.float64: np.float64, torch.bfloat16: np.float32, torch.float16: np.float32}


def pointer(tensor: torch.Tensor | None) -> np.uint64:
    """Return the address of a tensor's first entry as a kernel takes it; 0 for None."""
    return np.uint64(0 if tensor is None else tensor.data_ptr())


def key_and_place(key: int | torch.Tensor) -> tuple[np.uint64, np.uint64]:
    """Return a dropout key and the address of one that lies on the device, as a kernel takes them: one of them is 0."""
    return (np.uint64(0), pointer(key)) if torch.is_tensor(key) else (np.uint64(key), np.uint64(0))


def threshold(rate: float) -> np.uint32:
    """Return the bits below which an entry is dropped, as the CPU has them."""
    return np.uint32(min(rate * 4294967296.0, 4294967295.0))
