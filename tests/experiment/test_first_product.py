"""The way from GRAPH to the first sparse product is short: how many functions, in how many files, a reader passes through."""

import importlib
import inspect
import sys
from pathlib import Path

import pytest

import spgnn
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.experiment import run
from spgnn.spmm.kernels import _kernels

HOME = str(Path(spgnn.__file__).parent) + "/"
SOURCE = "sbm:n=60,seed=1"
ROOMS = ("experiment", "training", "distgraph")  # of which leaves count too
BESIDE = ("dist", "config", "errors.py", "machine.py", "atomic.py", "graph", "data")  # whose doors everybody knows
DOORS = ("dry_run", "LocalCSR.apply")  # what is behind them is not part of the way
WAYS = {
    "full": {},
    "sampled": {"sampler": "node", "budget": 20},
    "average": {"mode": "average", "parts": 2},
    "resume": {"epochs": 3},
}


class FirstProduct(BaseException):
    """Raised when the kernel is called."""


def functions_on_the_way(call):
    """Return {(file, function): {functions that it called}} of spgnn, in order, until the first product."""
    called, behind = {}, []

    def name(frame):
        return frame.f_code.co_filename.removeprefix(HOME), frame.f_code.co_qualname

    def first(*args, **kwargs):
        if not (behind and behind[0][1] == "dry_run"):
            raise FirstProduct
        return kernel(*args, **kwargs)

    def profile(frame, event, _):
        if not frame.f_code.co_filename.startswith(HOME):
            return
        if event == "return" and behind and behind[0][0] is frame:
            behind.clear()
        if event != "call" or behind:
            return
        callee, caller = name(frame), frame.f_back
        called.setdefault(callee, set())
        while caller is not None and not caller.f_code.co_filename.startswith(HOME):
            caller = caller.f_back
        if caller is not None:
            called.setdefault(name(caller), set()).add(callee)
        if callee[1] in DOORS:
            behind.append((frame, callee[1]))

    kernel, _kernels.spmm = _kernels.spmm, first
    sys.setprofile(profile)
    try:
        call()
    except FirstProduct:
        return called
    finally:
        sys.setprofile(None)
        _kernels.spmm = kernel
    raise AssertionError("no product was computed")


def counted(called):
    """Return the functions that a reader follows.

    Not counted: properties, constructors, what repr shows, checks, functions inside others, what is in BESIDE; and of the packages that
    are not in ROOMS, functions that call none that counts.
    """
    named = [function for function in called if _is_step(*function)]
    reaches = lambda function, seen: any(
        inner in named and inner != function or (inner not in seen and reaches(inner, seen | {inner}))
        for inner in called[function]
        if inner not in named or inner != function
    )
    return [f for f in named if f[0].split("/")[0] in ROOMS or f[1] in DOORS or reaches(f, {f})]


def _is_step(file, function):
    name = function.rpartition(".")[2]
    if file.split("/")[0] in BESIDE or name.startswith(("__", "check", "_check", "extra_repr")) or "<" in function:
        return False
    found = importlib.import_module("spgnn." + file.removesuffix(".py").replace("/", "."))
    for part in function.split("."):
        found = inspect.getattr_static(found, part, None)
    return not isinstance(found, property)


def way_of(name, folder):
    options = {"epochs": 2, "hidden": 4} | WAYS[name]
    if name == "resume":
        options["out"] = str(folder / "run")
        run(SOURCE, TrainConfig(**options | {"epochs": 2}), SelfCommunicator())
        options["resume"] = options["out"]
    run(SOURCE, TrainConfig(**options | {"epochs": 1, "out": "", "resume": ""}), SelfCommunicator())  # imports
    return counted(functions_on_the_way(lambda: run(SOURCE, TrainConfig(**options), SelfCommunicator())))


@pytest.mark.parametrize(
    "name, functions, files", [("full", 42, 21), ("sampled", 53, 25), ("average", 107, 43), ("resume", 55, 25)]
)
def test_the_way_to_the_first_product_is_short(name, functions, files, tmp_path):
    way = way_of(name, tmp_path)
    assert len(way) <= functions, way
    assert len({file for file, _ in way}) <= files, way


@pytest.mark.parametrize("options, runs", [({"prune": "never"}, 1), ({"prune": "auto"}, 2), ({"prune": "always"}, 2)])
def test_a_training_runs_its_model_without_data_once_for_all_rows_and_once_for_pruned_ones(options, runs, monkeypatch):
    made, dry = [], spgnn.spmm.dry.dry._run
    monkeypatch.setattr("spgnn.spmm.dry.dry._run", lambda model, setting: made.append(setting) or dry(model, setting))
    run(SOURCE, TrainConfig(epochs=2, hidden=4, **options), SelfCommunicator())
    assert len(made) == len(set(made)) == runs
