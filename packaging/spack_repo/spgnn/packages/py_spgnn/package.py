from pathlib import Path

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PySpgnn(PythonPackage):
    """Training of graph neural networks as SpMM/GEMM chains, on one machine or under MPI."""

    git = Path(__file__).resolve().parents[5].as_uri()  # the clone that this recipe is in

    license("MIT")

    version("main", branch="main")

    variant("mpi", default=True, description="Several ranks, with the MPI of the site or of Spack")

    depends_on("cxx", type="build")
    depends_on("py-setuptools@68:", type="build")
    depends_on("py-nanobind@3.1:", type="build")
    depends_on("py-numpy@2.0:", type="build")
    depends_on("python@3.11:", type=("build", "run"))

    with default_args(type="run"):
        depends_on("py-numpy@1.26:")
        depends_on("py-scipy@1.12:")
        depends_on("py-torch@2.2:")
        depends_on("py-click@8.1:")
        depends_on("py-safetensors@0.4.5:")
        depends_on("py-threadpoolctl@3.2:")
        depends_on("py-pymetis@2025.2.1:")
        depends_on("py-mpi4py@4.0:", when="+mpi")

    def setup_build_environment(self, env):
        env.set("SPGNN_ISA_BUILD", "all")  # loops for every x86-64 of the site
