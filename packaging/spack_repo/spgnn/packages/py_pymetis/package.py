from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyPymetis(PythonPackage):
    """Graph partitioning with METIS, whose sources it has."""

    pypi = "pymetis/pymetis-2025.2.2.tar.gz"

    license("MIT AND Apache-2.0")

    version("2025.2.2", sha256="79c6d56c30c6f3df7cc755617cbadcfc252a175ce4e5a59982edad0f1ab71c99")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-meson-python", type="build")
    depends_on("py-pybind11@3:", type="build")
    depends_on("py-typing-extensions@4.5:", type="run")
