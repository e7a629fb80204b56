"""The CUDA sources compile for the architectures that are named, without spills, where a compiler is."""

import re
import shutil
import subprocess

import pytest
from emulated_cuda import PASSES
from pairs import full_beyond

from spgnn.spmm.kernels.cuda.launcher import OPTIONS, source_text
from spgnn.spmm.kernels.cuda.work_items import WARP

ARCHITECTURES = full_beyond(1, ("90", "80"))


def spmm_instances() -> list[str]:
    """Whole packs of each type with most packs per lane, few lanes on several nonzeros, and mixed types."""
    most = [("float", 4, 4), ("double", 2, 4), ("bfloat16", 8, 2), ("float16", 8, 2)]
    return [f"spmm_items<{kind}, {kind}, int, {V}, 32, 1, {NV}, true>" for kind, V, NV in most] + [
        "spmm_items<float, float, int, 1, 4, 8, 1, true>",
        "spmm_items<float, float, long long, 4, 32, 1, 2, false>",
        "spmm_items<float, bfloat16, int, 4, 32, 1, 1, false>",
        "spmm_join<float, float>", "spmm_join<bfloat16, float>", "spmm_join<double, double>",
    ]  # fmt: skip


INSTANCES = {
    "spmm": [*dict.fromkeys([*spmm_instances(), *PASSES["spmm"]])],
    "dense": PASSES["dense"],
    "wire": PASSES["wire"],
}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("source", INSTANCES)
def test_nvcc_makes_machine_code_without_spills(source, architecture, tmp_path):
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    table = ",\n".join(f"(void*)&{name}" for name in INSTANCES[source])
    text = f"{source_text(source)}\nvoid* instances[] = {{{table}}};\n"
    (tmp_path / "kernels.cu").write_text(text)
    options = [*OPTIONS, f"-arch=sm_{architecture}", "-ftz=true", "-cubin", "-Xptxas", "-v", "-Werror", "all-warnings"]
    done = subprocess.run(
        ["nvcc", *options, "kernels.cu", "-o", "kernels.cubin"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(re.findall(r"Compiling entry function", done.stderr)) == len(INSTANCES[source])
    stacks = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", done.stderr)
    assert len(stacks) == len(INSTANCES[source]) and set(stacks) == {("0", "0", "0")}
    assert (
        max(int(n) for n in re.findall(r"Used (\d+) registers", done.stderr)) <= 80
    )  # three blocks of 256 on a multiprocessor


@pytest.mark.slow
@pytest.mark.parametrize("source", INSTANCES)
def test_nvrtc_compiles_what_cupy_hands_it(source):
    nvrtc = pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="no CuPy", exc_type=ImportError)
    names = INSTANCES[source][:: len(INSTANCES[source]) // 8 or 1]
    program = nvrtc.createProgram(source_text(source), f"{source}.cu", (), ())
    for name in names:
        nvrtc.addNameExpression(program, name)
    try:
        nvrtc.compileProgram(program, (*OPTIONS, "-arch=sm_90", "-ftz=true", "--device-as-default-execution-space"))
    except Exception as error:
        pytest.fail(f"{error}\n{nvrtc.getProgramLog(program)}")
    assert all(nvrtc.getLoweredName(program, name) for name in names)


def test_the_items_of_an_instance_fill_whole_warps():
    for name in INSTANCES["spmm"]:
        if name.startswith("spmm_items"):
            G, E = map(int, name.split(", ")[4:6])
            assert G * E == WARP or E == 1
