"""Files of packaging/ and of citation parse, and have the version, licence and dependencies of setup.cfg."""

import ast
import configparser
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
SPACK = ROOT / "packaging/spack_repo/spgnn"
COPIED = {"Dockerfile": r"^COPY (?!--)(.*) \S+$", "spgnn.def": r"^    (\S+) /source/"}
MODULE = "".join(
    f"proc {name} args {{puts $args}};" for name in ("module-whatis", "conflict", "setenv", "prepend-path")
)


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def pairs(lines) -> set[tuple[str, str]]:
    """(name, least version) of each NAME>=VERSION, as setup.cfg, conda and Spack write it."""
    found = (re.fullmatch(r"(?:py-)?([\w-]+?) ?(?:>=|@)([\d.]+):?", line) for line in lines)
    return {(match[1].replace("pytorch", "torch"), match[2]) for match in found if match}


CONFIG = configparser.ConfigParser()
CONFIG.read(ROOT / "setup.cfg")
META, EXTRAS = CONFIG["metadata"], CONFIG["options.extras_require"]
PYTHON = pairs(["python" + CONFIG["options"]["python_requires"]])
RUN = pairs(CONFIG["options"]["install_requires"].split()) | PYTHON
BUILD = pairs(tomllib.loads(read("pyproject.toml"))["build-system"]["requires"]) | PYTHON
RECIPE = yaml.safe_load(read("packaging/conda/recipe.yaml"))


def depends_on() -> set[tuple[str, str]]:
    nodes = ast.walk(ast.parse((SPACK / "packages/py_spgnn/package.py").read_text()))
    calls = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "depends_on"]
    return pairs(call.args[0].value for call in calls)


@pytest.mark.parametrize("found, expected", [
    (pairs(RECIPE["requirements"]["run"]), RUN),
    (pairs(RECIPE["requirements"]["host"]), BUILD),
    (pairs(RECIPE["requirements"]["run_constraints"]), pairs(EXTRAS["mpi"].split())),
    (depends_on(), RUN | BUILD | pairs(EXTRAS["site_mpi"].split())),
])  # fmt: skip
def test_dependencies_are_those_that_setup_cfg_names(found, expected):
    assert found == expected


@pytest.mark.parametrize("name, copied", COPIED.items())
def test_a_container_copies_files_that_are_there_and_installs_an_extra(name, copied):
    files = " ".join(re.findall(copied, text := read(f"packaging/{name}"), re.M)).split()
    assert len(files) == 7 and all((ROOT / file).exists() for file in files)
    assert re.search(r"pip install .*\[(\w+)\]'", text)[1] in EXTRAS


def test_the_other_files_parse_and_the_page_names_them():
    assert subprocess.run(["bash", "-n", ROOT / "packaging/aarch64"]).returncode == 0
    assert yaml.safe_load((SPACK / "repo.yaml").read_text())["repo"]["namespace"] == SPACK.name
    if tclsh := shutil.which("tclsh"):
        done = subprocess.run([tclsh], input=MODULE + read("packaging/modulefile"), capture_output=True, text=True)
        assert "PATH /opt/spgnn/bin" in done.stdout and not done.stderr
    assert all(f"packaging/{path.name}" in read("docs/install.md") for path in (ROOT / "packaging").iterdir())


def test_citation_codemeta_and_conda_have_the_version_and_licence_of_setup_cfg():
    cff, meta = yaml.safe_load(read("CITATION.cff")), json.loads(read("codemeta.json"))
    assert {cff["version"], meta["version"], RECIPE["context"]["version"]} == {META["version"]}
    assert {cff["license"], meta["license"].rpartition("/")[2], RECIPE["about"]["license"]} == {META["license"]}
    assert set(meta["softwareRequirements"]) == {name for name, _ in RUN - PYTHON}
    papers = " ".join(read("docs/papers.md").lower().split())
    assert len(cff["references"]) == 5 and all(paper["title"].lower() in papers for paper in cff["references"])
