"""What CuPy is asked for when a kernel is launched, of a stand-in; how rows are shared out over warps."""

import inspect
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from spgnn import load_graph
from spgnn.errors import ResourceError, UsageError
from spgnn.spmm.kernels import backend
from spgnn.spmm.kernels.cpu import HostKernels
from spgnn.spmm.kernels.cuda.kernels import CudaKernels
from spgnn.spmm.kernels.cuda.launcher import CupyLauncher
from spgnn.spmm.kernels.cuda.vendor import CusparseKernels
from spgnn.spmm.kernels.cuda.work_items import LONG, SHORT, common_pack, launches, row_plan, tiling


class CompileException(Exception):
    """As CuPy's."""


class Entered:
    """A device or stream that notes when it is entered."""

    def __init__(self, log, what):
        self.log, self.what = log, what

    def __enter__(self):
        self.log.append(self.what)

    def __exit__(self, *_):
        self.log.append(f"left {self.what}")


@pytest.fixture
def cupy(monkeypatch):
    log = []

    class RawModule:
        def __init__(self, code, options, name_expressions):
            assert "#include" not in code and "#pragma once" not in code and "-std=c++17" in options
            self.names = name_expressions
            log.append(f"compiled {name_expressions[0]}")

        def get_function(self, name):
            if "wrong" in name:
                raise CompileException("no such template\nand much more")
            if "header" in name:
                raise RuntimeError("Failed to find CUDA headers")
            assert name in self.names
            return lambda grid, block, args: log.append((name, grid, block, [type(arg).__name__ for arg in args]))

    stream = SimpleNamespace(from_external=lambda foreign: Entered(log, f"stream {foreign.__cuda_stream__()[1]}"))
    compiler = SimpleNamespace(CompileException=CompileException)
    fake = SimpleNamespace(
        RawModule=RawModule,
        cuda=SimpleNamespace(Device=lambda n: Entered(log, f"device {n}"), Stream=stream, compiler=compiler),
        log=log,
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr("torch.cuda.current_stream", lambda device: SimpleNamespace(cuda_stream=77))
    return fake


def test_a_kernel_is_compiled_once_and_launched_on_torchs_stream_of_its_device(cupy):
    launcher = CupyLauncher(torch.device("cuda", 3))
    for _ in range(2):
        launcher.launch("spmm", "take_rows<u32>", (5, 1), (32, 8), (np.uint64(0), np.int64(1)))
    launch = ("take_rows<u32>", (5, 1), (32, 8), ["uint64", "int64"])
    around = lambda inner: ["device 3", *inner, "left device 3"]
    once = ["stream 77", launch, "left stream 77"]
    assert cupy.log == around(["compiled take_rows<u32>", *once]) + around(once)


def test_a_source_that_does_not_compile_is_one_line_with_the_way_out(cupy):
    with pytest.raises(
        ResourceError, match="dense.cu: wrong<int> does not compile: no such template; SPGNN_SPMM=cusparse"
    ):
        CupyLauncher(torch.device("cuda", 0)).launch("dense", "wrong<int>", (1, 1), (1, 1), ())
    with pytest.raises(
        ResourceError, match="dense.cu: header<int> does not compile: Failed to find CUDA headers; SPGNN_SPMM=cusparse"
    ):
        CupyLauncher(torch.device("cuda", 0)).launch("dense", "header<int>", (1, 1), (1, 1), ())


def test_cusparse_keeps_what_does_not_change_and_no_weights_that_are_drawn_anew():
    kernels = CusparseKernels(torch.device("cpu"), None)
    indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 1], np.int32)
    for weights in (np.ones(3, np.float32), None):
        A = SimpleNamespace(indptr=indptr, indices=indices, weights=weights, nnz=3)
        assert kernels._values(A, torch.float64) is kernels._values(A, torch.float64)
        assert kernels._indices(A)[1].dtype == torch.int32 and kernels._indices(A) is kernels._indices(A)
    kept = len(kernels._made)
    for epoch in range(3):
        A = SimpleNamespace(indptr=indptr, indices=indices, weights=torch.full((3,), float(epoch)), nnz=3)
        assert kernels._values(A, torch.float64).tolist() == [epoch] * 3
    assert len(kernels._made) == kept
    assert [
        part.dtype
        for part in kernels._indices(SimpleNamespace(indptr=indptr, indices=indices, weights=None, nnz=2**31))
    ] == [torch.int64] * 2


def test_the_kernels_of_a_device_are_chosen_by_name(cupy, monkeypatch):
    backend._of_device.cache_clear()
    monkeypatch.setenv("SPGNN_SPMM", "cusparse")
    chosen = backend.kernels_on(torch.device("cuda", 5))
    assert type(chosen).__name__ == "CusparseKernels" and backend.kernels_on(torch.device("cuda", 5)) is chosen
    backend._of_device.cache_clear()
    monkeypatch.setenv("SPGNN_SPMM", "cusparce")
    with pytest.raises(UsageError, match="did you mean 'cusparse'"):
        backend.kernels_on(torch.device("cuda", 5))
    assert backend.kernels_on(torch.device("cpu")) is backend.HOST


def test_the_kernels_of_cpu_and_device_are_called_alike():
    for name, method in vars(HostKernels).items():
        if not name.startswith("_"):
            assert (
                inspect.signature(method).parameters.keys()
                == inspect.signature(getattr(CudaKernels, name)).parameters.keys()
            )


@pytest.mark.parametrize("seed", range(4))
def test_every_nonzero_is_in_one_item_and_every_row_is_written_once(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.choice([0, 1, 5, SHORT, SHORT + 1, LONG, LONG + 1, 3 * LONG + 7], rng.integers(0, 40))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    plan = row_plan(indptr)
    items, joins = plan.items_M, plan.joins_J
    covered = np.zeros(indptr[-1], int)
    for item in items:
        covered[item["start"] : item["start"] + item["length"]] += 1
    assert (covered == 1).all() and items["length"].max(initial=0) <= LONG
    whole, slots = items[items["row"] >= 0], ~items["row"][items["row"] < 0]
    assert sorted([*whole["row"], *joins["row"]]) == list(range(len(lengths))) and sorted(slots) == list(
        range(plan.n_slots)
    )
    for join in joins:
        parts = items[
            np.isin(~items["row"], np.arange(join["first"], join["first"] + join["count"])) & (items["row"] < 0)
        ]
        assert parts["length"].sum() == lengths[join["row"]] and parts["length"].max() - parts["length"].min() <= 1
    assert (items["length"][: plan.n_warps] > SHORT).all() and (items["length"][plan.n_warps :] <= SHORT).all()
    assert (items["length"][: plan.n_filled] > 0).all() and (items["length"][plan.n_filled :] == 0).all()


@pytest.mark.parametrize("x_bytes", [2, 4, 8])
def test_lanes_cover_every_column_of_every_width_and_launches_every_item(x_bytes):
    plan = row_plan(np.concatenate([[0], np.cumsum([700, 0, 3, 40, 16])]))
    for F in range(1, 1025):
        V = common_pack(F, (0, x_bytes), (0, 4))
        tile = tiling(F, x_bytes, V)
        columns = tile.G * tile.V * tile.NV
        assert tile.tiles * columns >= F > (tile.tiles - 1) * columns and F % tile.V == 0 and tile.V * x_bytes <= 16
        assert tile.G == 32 or (tile.NV == tile.tiles == 1 and tile.G * tile.V < 2 * F)
        parts = launches(plan, tile, len(plan.items_M))
        assert [first for first, *_ in parts] == [0, *np.cumsum([count for _, count, *_ in parts])[:-1]]
        assert sum(count for _, count, *_ in parts) == len(plan.items_M)
        assert all(blocks * 256 >= count * tile.G * E for _, count, E, blocks in parts)


def test_packs_are_as_wide_as_width_and_addresses_allow():
    assert common_pack(64, (256, 4), (512, 4)) == 8  # two words of 16 bytes
    assert (
        common_pack(64, (264, 4), (512, 4)) == 2 and common_pack(41, (256, 4)) == 1 and common_pack(12, (256, 2)) == 4
    )


def test_the_graphs_that_the_tests_on_a_device_name_are_there():
    from test_on_device import GRAPHS

    assert all(load_graph(name).n_nodes for name in GRAPHS)
