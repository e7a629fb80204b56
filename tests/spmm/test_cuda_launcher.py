"""CUDA sources compile where a compiler is; what CuPy is asked for at a launch; how rows are divided among warps."""

import re
import shutil
import subprocess
from types import SimpleNamespace

import fake_cupy
import numpy as np
import pytest
import torch
from pairs import full_beyond

from spgnn.errors import ResourceError
from spgnn.spmm.kernels import backend
from spgnn.spmm.kernels.cuda.kernels import CudaKernels
from spgnn.spmm.kernels.cuda.launcher import OPTIONS, CupyLauncher, source_text
from spgnn.spmm.kernels.cuda.work_items import common_pack, launches, row_plan, tiling

# Of the passes between products and the exchange.
T, S, I = ("float", "double"), ("float", "double", "bfloat16"), ("int", "long long")
PASSES = {
    "dense": [f"{k}<{s}>" for k in ("mask_sum", "drop") for s in S]
    + [f"{k}<{t}>" for k in ("add_chunks", "softmax_xent") for t in T]
    + [f"drop_csr<{t}, {i}>" for t in T for i in I]
    + ["finish<bfloat16, bfloat16>", "finish<bfloat16, float>", "finish<float, float>"],
    "wire": [f"{k}<{s}>" for k in ("encode", "decode") for s in S],
    "spmm": [f"take_rows<{w}>" for w in ("uint4", "uint2", "u32", "u16", "u8")],
}
# Whole packs of each type with most packs per lane, few lanes on several nonzeros, and mixed types.
MOST = [("float", 4, 4), ("double", 2, 4), ("bfloat16", 8, 2), ("float16", 8, 2)]
INSTANCES = PASSES | {
    "spmm": [
        *(f"spmm_items<{kind}, {kind}, int, {V}, 32, 1, {NV}, true>" for kind, V, NV in MOST),
        "spmm_items<float, float, int, 1, 4, 8, 1, true>",
        "spmm_items<float, float, long long, 4, 32, 1, 2, false>",
        "spmm_items<float, bfloat16, int, 4, 32, 1, 1, false>",
        *("spmm_join<float, float>", "spmm_join<bfloat16, float>", "spmm_join<double, double>"),
        *PASSES["spmm"],
    ],
    "attention": [
        f"{kernel}, {even}, {block}>"
        for even in ("true", "false")
        for block in ("true", "false")
        for kernel in ("attend<float, 2, false", "attend_adjoint<bfloat16, 2", "attend2_adjoint<double, 2, true")
    ],
    "edges": [
        f"{kernel}, {block}>"
        for block in ("true", "false")
        for kernel in ("maximum<float, int", "sddmm<float, 2, true")
    ],
}
SPILLED = {"attention": 64}  # bytes at most: of a few scalars, for one block more on a multiprocessor


@pytest.mark.slow
@pytest.mark.parametrize("architecture", full_beyond(1, ("90", "80")))
@pytest.mark.parametrize("source", INSTANCES)
def test_nvcc_makes_machine_code_without_spills(source, architecture, tmp_path):
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    table = ",\n".join(f"(void*)&{name}" for name in INSTANCES[source])
    (tmp_path / "kernels.cu").write_text(f"{source_text(source)}\nvoid* instances[] = {{{table}}};\n")
    options = [*OPTIONS, f"-arch=sm_{architecture}", "-ftz=true", "-cubin", "-Xptxas", "-v", "-Werror", "all-warnings"]
    argv = ["nvcc", *options, "kernels.cu", "-o", "kernels.cubin"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    stacks = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", done.stderr)
    assert len(stacks) == len(INSTANCES[source])
    assert max(int(n) for stack in stacks for n in stack) <= SPILLED.get(source, 0)
    # Three blocks of 256 on a multiprocessor.
    assert max(int(n) for n in re.findall(r"Used (\d+) registers", done.stderr)) <= 80


@pytest.mark.slow
@pytest.mark.parametrize("source", INSTANCES)
def test_nvrtc_compiles_what_cupy_hands_it(source):
    nvrtc = pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="no CuPy", exc_type=ImportError)
    names = INSTANCES[source][:: len(INSTANCES[source]) // 8 or 1]
    program = nvrtc.createProgram(source_text(source), f"{source}.cu", (), ())
    for name in names:
        nvrtc.addNameExpression(program, name)
    nvrtc.compileProgram(program, (*OPTIONS, "-arch=sm_90", "-ftz=true", "--device-as-default-execution-space"))
    assert all(nvrtc.getLoweredName(program, name) for name in names), nvrtc.getProgramLog(program)


@pytest.fixture
def cupy(monkeypatch):
    fake_cupy.install(monkeypatch)
    monkeypatch.setattr("torch.cuda.current_stream", lambda device: SimpleNamespace(cuda_stream=77))


def test_a_kernel_is_compiled_once_and_launched_on_torchs_stream_of_its_device(cupy):
    launcher = CupyLauncher(torch.device("cuda", 3))
    for _ in range(2):
        launcher.launch("spmm", "take_rows<u32>", (5, 1), (32, 8), (np.uint64(0), np.int64(1)))
    launch = ("take_rows<u32>", (5, 1), (32, 8), ["uint64", "int64"])
    around = lambda *first: ["device 3", *first, "stream 77", launch, "left stream 77", "left device 3"]
    assert fake_cupy.LOG == around("compiled take_rows<u32>") + around()


@pytest.mark.parametrize("name, why", [("wrong", "no such template"), ("header", "Failed to find CUDA headers")])
def test_a_source_that_does_not_compile_is_one_line_with_the_way_out(cupy, name, why):
    with pytest.raises(
        ResourceError,
        match=f"dense.cu: {name}<int> does not compile: {why}; see docs/performance.md, or use device cpu",
    ):
        CupyLauncher(torch.device("cuda", 0)).launch("dense", f"{name}<int>", (1, 1), (1, 1), ())


def test_a_device_has_its_kernels_and_keeps_them(cupy):
    backend._of_device.cache_clear()
    chosen = backend.kernels_on(torch.device("cuda", 5))
    assert type(chosen) is CudaKernels and backend.kernels_on(torch.device("cuda", 5)) is chosen
    assert backend.kernels_on(torch.device("cpu")) is backend.HOST


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
