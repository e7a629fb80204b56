"""The wheel, without a compiler, with the oldest and the newest Python and packages: installs, trains, tests pass."""

import configparser
import os
import re
import shutil
import subprocess
import zipfile
from functools import partial
from pathlib import Path

from attack import ROOT, NotRun, folder

QUICK, FULL = 0, 3  # environments; each wheel takes minutes to compile
PYTHONS = range(11, 16)  # 3.11, the oldest that setup.cfg names, and later
TESTED = ["pytest", "hypothesis"]  # of the extra dev, for tests/layers, tests/spmm, tests/graph
SHOWN = ("numpy", "scipy", "mpi4py")


def attack(seed: int, amount: int):
    """Try the oldest Python with the oldest packages, and the newest with the newest; return what each had, and failures.

    Where pip finds no CPU build of torch for the newest Python, that one does without what needs torch, and the newest
    packages are tried on the oldest Python too. No CUDA build of torch is ever installed.
    """
    if not (shutil.which("g++") or os.environ.get("CXX")):
        raise NotRun("no C++ compiler to build the wheels with")
    found = {minor: python for minor in PYTHONS if (python := find_python(minor))}
    if PYTHONS[0] not in found:
        raise NotRun(f"no Python 3.{PYTHONS[0]}, the oldest that setup.cfg names")
    figures = {f"Python 3.{minor} is here": "no" for minor in PYTHONS if minor not in found}
    tries = [(PYTHONS[0], oldest), (max(found), newest), (PYTHONS[0], newest)]
    failures: list[str] = []
    for minor, choose in tries[:amount]:
        with folder() as home:
            try:
                wheel = build(found[minor])
                figures |= attempt(home, found[minor], wheel, choose)
            except subprocess.CalledProcessError as error:
                command = " ".join(map(str, error.cmd))
                said = f"{error.stdout or ''}{error.stderr or ''}"[-1500:]
                failures.append(
                    f"Python 3.{minor}, {choose.__name__}: {command[-300:]} ended with {error.returncode}: {said}"
                )
    return figures, failures


def find_python(minor: int) -> str | None:
    """Return a Python 3.minor that can make environments, of PATH or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [f"python3.{minor}", *sorted(pyenv.glob(f"3.{minor}.*/bin/python"), reverse=True)]
    probe = f"import ensurepip, venv, sys; sys.exit(sys.version_info[:2] != (3, {minor}))"
    for name in filter(None, map(shutil.which, names)):
        if subprocess.run([name, "-c", probe], capture_output=True).returncode == 0:
            return name
    return None


def build(python: str) -> str:
    """Return the wheel that runs/wheel makes for a Python."""
    return run([ROOT / "runs" / "wheel"], env=os.environ | {"PYTHON": python}).splitlines()[-1]


def attempt(home: Path, python: str, wheel: str, choose) -> dict[str, object]:
    """Install the wheel and what it needs into a new environment, train and test there; return what it was: figures.

    Raises: CalledProcessError where a command fails.
    """
    run([python, "-m", "venv", home / "venv"])
    own = home / "venv" / "bin" / "python"
    builds = torch_builds(own)
    chosen = [choose(need) for need in needs() if not need.startswith("torch")]
    chosen += [f"torch=={(builds[-1] if choose is oldest else builds[0])}"] if builds else []
    run([own, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *chosen])
    run([own, "-m", "pip", "install", "--quiet", "--no-deps", wheel])
    try_it = partial(run, cwd=home, env=without_compiler(own))
    try_it(["spgnn", "convert", "wordnet", "graph"])
    try_it(["spgnn", "partition", "graph", "-k", 2, "--out", "parts"])
    try_it(["spgnn", "check", "parts"])
    tests = 0
    if builds:
        try_it(["spgnn", "doctor"])
        try_it(["spgnn", "train", "wordnet", "--epochs", 2, "--hidden", 16, "--out", "run"])
        try_it(["mpirun", "-n", 2, "spgnn", "train", "wordnet", "--epochs", 2, "--hidden", 16, "--out", "run-2"])
        shutil.copytree(ROOT / "tests", home / "tests"), shutil.copy(ROOT / "setup.cfg", home)
        folders = ["tests/layers", "tests/spmm", "tests/graph"]
        how = ["-q", "-p", "no:cacheprovider", "--basetemp", home / "tmp", "-m", "not mpi and not full"]
        said = try_it(["python", "-m", "pytest", *how, *folders])
        tests = int(re.findall(r"(\d+) passed", said)[-1])
    listed = run([own, "-m", "pip", "list", "--format", "freeze"])
    versions = dict(line.split("==") for line in listed.splitlines() if "==" in line)
    about = ", ".join(f"{name} {versions[name]}" for name in SHOWN)
    torch = f"torch {versions['torch']}" if builds else "without torch, as pip finds no CPU build"
    return {f"tests on {Path(wheel).name.split('-')[2]}, {torch}, {about}": tests}


def needs() -> list[str]:
    """Return NAME>=VERSION of what spgnn, its extra mpi and the tests need, from setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = config["options.extras_require"]
    tests = [line for line in extras["dev"].split() if line.split(">=")[0] in TESTED]
    return [*config["options"]["install_requires"].split(), *extras["mpi"].split(), *tests]


def oldest(need: str) -> str:
    return need.replace(">=", "==")


def newest(need: str) -> str:
    return need


def torch_builds(python: Path) -> list[str]:
    """Return the releases of torch that setup.cfg allows and pip finds as CPU builds for a Python, newest first."""
    (lowest,) = (need.partition(">=")[2] for need in needs() if need.startswith("torch>="))
    said = run([python, "-m", "pip", "index", "versions", "torch"])
    (line,) = re.findall(r"Available versions: (.*)", said)
    number = lambda release: [int(part) for part in re.findall(r"\d+", release.partition("+")[0])]
    return [release for release in line.split(", ") if release.endswith("+cpu") and number(release) >= number(lowest)]


def without_compiler(python: Path) -> dict[str, str]:
    """Return an environment whose PATH has what pip installed and nothing else."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CC", "CXX", "VIRTUAL_ENV")}
    return kept | {"PATH": str(python.parent)}


def run(words: list, **how) -> str:
    """Run a command and return what it printed; PYTHONPATH, which would hide the wheel, is not passed on.

    Raises: CalledProcessError if it fails.
    """
    how.setdefault("env", dict(os.environ))
    how["env"].pop("PYTHONPATH", None)
    words = [str(word) for word in words]
    words[0] = shutil.which(words[0], path=how["env"]["PATH"]) or words[0]
    return subprocess.run(words, check=True, capture_output=True, text=True, **how).stdout


def plant() -> None:
    """The wheel lacks the graph that comes with it."""
    usual = build

    def careless(python: str) -> str:
        whole = Path(usual(python))
        (less := ROOT / "build" / "wheels" / "planted" / whole.name).parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(whole) as old, zipfile.ZipFile(less, "w") as new:
            [new.writestr(entry, old.read(entry)) for entry in old.namelist() if "data/wordnet/" not in entry]
        return str(less)

    globals()["build"] = careless
