"""Build the C++ extensions; everything else about the package stands in setup.cfg."""

import os
import platform

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup

# Instruction sets are chosen at run time inside the sources (one build runs on
# any x86-64 and uses AVX2 or AVX-512 where they are), so no -march here.
COMPILE = ["-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wno-psabi"]
if platform.machine() in ("aarch64", "arm64"):
    COMPILE.append("-ffp-contract=fast")
# Sets of parts are words whose bits are counted; every x86-64 since 2008 has an instruction for it.
COUNT_BITS = ["-mpopcnt"] if platform.machine() in ("x86_64", "AMD64") else []

ParallelCompile("SPGNN_BUILD_JOBS").install()  # the files of an extension on all cores

setup(
    ext_modules=[
        Pybind11Extension(
            "spgnn.spmm.kernels._kernels",
            [
                f"spgnn/spmm/kernels/{name}.cpp"
                for name in (
                    "kernels",
                    "spmm",
                    "dense",
                    "panels",
                    "tiles",
                    "wire",
                    "attention",
                    "attention2",
                    "edges",
                    "maximum",
                )
            ],
            depends=[
                f"spgnn/spmm/kernels/{name}.h"
                for name in (
                    "parallel",
                    "storage",
                    "isa",
                    "lanes",
                    "columns",
                    "rows",
                    "tiles",
                    "dense",
                    "wire",
                    "hash",
                    "edge_block",
                    "edge_math",
                    "edge_tiles",
                    "attention",
                    "attention2",
                    "edges",
                    "maximum",
                )
            ],
            cxx_std=17,
            extra_compile_args=COMPILE,
            extra_link_args=["-fopenmp"],
        ),
        Pybind11Extension(
            "spgnn.samplers._samplers",
            [
                f"spgnn/samplers/{name}.cpp"
                for name in ("samplers", "draws", "induce", "operators", "frontier", "blocks", "shadow")
            ],
            depends=["spgnn/partition/arrays.h"]
            + [
                f"spgnn/samplers/{name}.h"
                for name in (
                    "samplers",
                    "rng",
                    "alias",
                    "induce",
                    "workspaces",
                    "probe",
                    "frontier",
                    "classes",
                    "pick",
                    "owned",
                )
            ],
            cxx_std=17,
            # The same draws on every machine: no fused multiply-add.
            extra_compile_args=["-O3", "-Wall", "-Wno-psabi", "-ffp-contract=off", *COUNT_BITS],
        ),
        Pybind11Extension(
            "spgnn.partition._loops",
            [f"spgnn/partition/{name}.cpp" for name in ("loops", "cover", "locality", "similarity")],
            depends=[f"spgnn/partition/{name}.h" for name in ("arrays", "loops", "cover", "locality", "similarity")],
            cxx_std=17,
            extra_compile_args=["-O3", "-Wall", "-pthread"],
            extra_link_args=["-pthread"],
        ),
        Pybind11Extension(
            "spgnn.partition.refine._volume",
            ["spgnn/partition/refine/volume/volume.cpp"],
            depends=["spgnn/partition/arrays.h", "spgnn/partition/cover.h"]
            + [
                f"spgnn/partition/refine/volume/{name}.h"
                for name in ("covers", "isa", "levels", "loads", "multilevel", "refine", "scores", "state")
            ],
            cxx_std=17,
            # The same scores on every machine: no fused multiply-add.
            extra_compile_args=["-O3", "-Wall", "-Wno-psabi", "-pthread", "-ffp-contract=off", *COUNT_BITS],
            extra_link_args=["-pthread"],
        ),
        Pybind11Extension(
            "spgnn.partition.stream._stream",
            ["spgnn/partition/stream/stream.cpp"],
            depends=["spgnn/partition/arrays.h"]
            + [
                f"spgnn/partition/stream/{name}.h"
                for name in ("edges", "summary", "refine", "replicas", "spring", "text", "vertexcut")
            ],
            cxx_std=17,
            # Scores decide by comparing doubles: the same on every machine, so no fused multiply-add.
            extra_compile_args=["-O3", "-Wall", "-ffp-contract=off"],
        ),
        Pybind11Extension(
            "spgnn.partition.folder.pipeline._pipeline",
            ["spgnn/partition/folder/pipeline/pipeline.cpp"],
            depends=["spgnn/partition/arrays.h", "spgnn/partition/stream/edges.h"]
            + [f"spgnn/partition/folder/pipeline/{name}.h" for name in ("halo", "rows", "sums")],
            cxx_std=17,
            extra_compile_args=["-O3", "-Wall"],
        ),
    ],
    cmdclass={"build_ext": build_ext},
    options={"build_ext": {"parallel": os.cpu_count()}},
)
