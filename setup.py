"""Build the C++ extensions; everything else about the package stands in setup.cfg."""

import platform

from pybind11.setup_helpers import Pybind11Extension, build_ext
from setuptools import setup

# Instruction sets are chosen at run time inside the sources (one build runs on
# any x86-64 and uses AVX2 or AVX-512 where they are), so no -march here.
COMPILE = ["-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wno-psabi"]
if platform.machine() in ("aarch64", "arm64"):
    COMPILE.append("-ffp-contract=fast")

setup(
    ext_modules=[
        Pybind11Extension(
            "spgnn.spmm._kernels",
            ["spgnn/spmm/kernels.cpp"],
            depends=["spgnn/spmm/rows.h", "spgnn/spmm/lanes.h", "spgnn/spmm/dense.h"],
            cxx_std=17,
            extra_compile_args=COMPILE,
            extra_link_args=["-fopenmp"],
        ),
    ],
    cmdclass={"build_ext": build_ext},
)
