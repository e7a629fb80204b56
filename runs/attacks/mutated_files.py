"""Mutated files of every kind that a command reads: right results or one clean error, in 1 GB of memory."""

import json
import os
import shutil
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from attack import FAST, GRAPH, here, isolated, need, within

QUICK, FULL = 315, 10_000  # mutated files
MEMORY_MB = 1024
# What a run, parts and other inputs are broken for: name -> (folder of seeds, files that are broken, command, its result).
# A result is compared where the files are sealed: with exit code 0 it has to be the result of the files as they were.
COMMANDS = {
    "parts, averaged": ("parts", "p/**/*", "train p --mode average --epochs 2 --out new".split() + FAST, None),
    "parts, full": ("parts", "p/**/*", "train p --epochs 2 --out new".split() + FAST, None),
    "parts, measured": ("parts", "p/*", ["measure", "g", "--partition", "p", "--json"], ""),
    "graph": ("parts", "g/*", ["check", "g"], "g/"),
    "run, predicted": ("run", "run/checkpoints/*/*", ["predict", "run", "--out", "new.npy"], "new.npy"),
    "run, resumed": ("run", "run/checkpoints/*/*", "train --resume run --epochs 5".split(), "run"),
    "run, other files": ("run", "run/*", "train --resume run --epochs 5".split(), None),
    "run, reported": ("run", "run/*", ["report", "run", "--out", "new.html"], None),
    "arrays": ("text", "*.npy", "train e.txt --features x.npy --labels y.npy --split s.npy --epochs 1".split() + FAST, None),
    "streamed": ("text", "e.txt", "partition e.txt --memory 2GB --method spring+ -k 2 --out new".split(), None),
    "options": ("text", "c.toml", "train g --config c.toml --epochs 1".split(), None),  # not the billions that a digit makes
    "machine": ("text", "m.toml", ["plan", "g", "--machine", "m.toml", "--ranks", "2"], None),
}  # fmt: skip


def attack(seed: int, amount: int):
    """Mutate amount files of all formats and of what spgnn writes; return counts of outcomes, and what was bad."""
    warnings.filterwarnings("ignore", message="Duplicate name")  # members are doubled on purpose
    root = Path(os.environ["TMPDIR"]) / "seeds"
    root.mkdir()
    try:
        index = write_seeds(root)
        cases = [(seed, number, index[number % len(index)]) for number in range(amount)]
        outcomes, failures, worst_mb, worst_s = Counter(), [], 0.0, 0.0
        for case, found in isolated(lambda case: one(root, *case), cases):
            outcome = found.get("outcome", "crash")
            outcomes[outcome] += 1
            worst_mb, worst_s = max(worst_mb, found.get("mb", 0)), max(worst_s, found.get("seconds", 0))
            if outcome not in ("loaded", "clean error"):
                said = found.get("crash") or f"{outcome}: {found['message']}"
                failures.append(f"case {case[1]}, {case[2]['kind']}, {found.get('how', '')}: {said[-1200:]}")
    finally:
        shutil.rmtree(root)
    figures = {"files": amount, "kinds": len(index), "refused": outcomes["clean error"], "read": outcomes["loaded"]}
    return figures | {"MB at most": round(worst_mb), "s at most": round(worst_s, 1)}, failures


def write_seeds(root: Path) -> list[dict]:
    """Write the files to break; return {kind, home, path, digest or result} of each."""
    import tiny_files

    from spgnn.data import load_graph, save_graph

    index = []
    for (form, what), write in tiny_files.WRITERS.items():
        (home := root / f"{len(index):02d}").mkdir()
        path = write(home)
        index.append({"kind": form, "home": home.name, "path": path.name})
        if what in ("sparse", "multi-label"):
            (home := root / f"{len(index):02d}").mkdir()
            save_graph(load_graph(path), home / "native")
            index.append({"kind": "native", "home": home.name, "path": "native"})
    for entry in index:
        entry["digest"] = load_graph(root / entry["home"] / entry["path"]).digest()
    write_folders(root)
    for kind, (home, _, words, compared) in COMMANDS.items():
        shutil.copytree(root / home, work := root / "clean")
        need(run_in(work, words))
        index.append({"kind": kind, "home": home, "result": result(work, compared) if compared is not None else None})
        shutil.rmtree(work)
    return index


def write_folders(root: Path) -> None:
    """Write parts of a graph, a run, and files of text and arrays."""
    for home in ("parts", "run", "text"):
        (root / home).mkdir()
        need(here("convert", GRAPH, root / home / "g"))
    need(here("partition", root / "parts" / "g", "-k", 2, "--out", root / "parts" / "p"))
    run = ["--epochs", 3, "--dropout", 0.3, "--checkpoint-every", 0, "--out", root / "run" / "run"]
    need(here("train", GRAPH, *FAST, *run))
    rng, text = np.random.default_rng(0), root / "text"
    np.savetxt(text / "e.txt", rng.integers(0, 40, (100, 2)), fmt="%d")
    for name, array in (("x", rng.random((40, 3), np.float32)), ("y", np.arange(40) % 3), ("s", np.arange(40) % 3)):
        np.save(text / f"{name}.npy", array)
    (text / "c.toml").write_text("epochs = 1\nhidden = 4\nlr = 0.05\ndropout = 0.1\nseed = 1\n")
    from spgnn.cost import machines

    shutil.copy(Path(machines.__file__).with_name("laptop.toml"), text / "m.toml")


def run_in(folder: Path, words: list[str]):
    """Run a command in this process, with the folder as its working directory."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        return here(*words)
    finally:
        os.chdir(before)


def result(folder: Path, name: str) -> str:
    """Return what a command left, without what time it took."""
    path = folder / name
    if name.endswith("/"):  # a checksum of each array was compared
        return repr([file.read_bytes() for file in sorted(path.glob("*.npy"))])
    if path.suffix == ".npy":
        return path.read_bytes().hex()
    if not name or not path.exists():
        return ""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return json.dumps([[line["epoch"], line["loss"], line["val"]] for line in lines])


def one(root: Path, seed: int, number: int, entry: dict) -> dict:
    """Break a copy of one seed and use it."""
    from mutations import mutate_case

    rng, home = np.random.default_rng([seed, number]), root / f"case-{number}"
    shutil.copytree(root / entry["home"], home)
    marker = home / "executed"
    if entry["kind"] in COMMANDS:
        _, pattern, words, _ = COMMANDS[entry["kind"]]
        files = [path for path in sorted(home.glob(pattern)) if path.is_file()]
        how, _ = mutate_case(home, "", rng, marker, files)
        call = lambda: command(home, words, entry)
    else:
        how, keeps = mutate_case(home, entry["kind"], rng, marker)
        form = entry["kind"] if rng.random() < 0.8 else None
        call = lambda: load(home / entry["path"], form, entry["digest"] if keeps else None)
    try:
        (found, mb), message = within(MEMORY_MB, call), ""
        outcome, message, seconds = found
    except MemoryError:
        outcome, message, mb, seconds = "over memory", traceback.format_exc(), 0, 0
    if marker.exists():
        outcome, message = "crash", "a pickle was executed"
    if mb > MEMORY_MB:
        outcome, message = "over memory", f"{mb:.0f} MB"
    shutil.rmtree(home, ignore_errors=True)
    return {"how": how, "outcome": outcome, "message": message[-3000:], "mb": mb, "seconds": seconds}


def command(home: Path, words: list[str], entry: dict) -> tuple[str, str, float]:
    """Run a command on broken files; return (outcome, message, seconds)."""
    ended = run_in(home, words)
    if fault := ended.fault():
        return "crash", f"{fault}\n{ended.err}", ended.seconds
    if ended.code == 0 and entry["result"] is not None and result(home, COMMANDS[entry["kind"]][3]) != entry["result"]:
        return "wrong", "another result, with exit code 0", ended.seconds
    return ("loaded" if ended.code == 0 else "clean error"), ended.err, ended.seconds


def load(path: Path, form: str | None, digest: str | None) -> tuple[str, str, float]:
    """Load a broken file and use the graph; digest: what it must have, as a checksum protects the file."""
    from spgnn import data
    from spgnn.errors import InputError

    begun = time.monotonic()
    try:
        graph = data.load_graph(path, format=form)
        use(graph)
        outcome, message = "loaded", ""
        if digest and graph.digest() != digest:
            outcome, message = "wrong", "loaded another graph although a checksum protects the file"
    except InputError as error:
        outcome, message = "clean error", str(error)
    except AssertionError:
        outcome, message = "wrong", traceback.format_exc()
    except MemoryError:
        raise
    except BaseException:
        outcome, message = "crash", traceback.format_exc()
    return outcome, message, time.monotonic() - begun


def use(graph) -> None:
    """Compare what was loaded with what a Graph promises, and multiply by it."""
    for matrix in (graph.A, *([graph.X] if hasattr(graph.X, "indices") else [])):
        assert ((matrix.indices >= 0) & (matrix.indices < matrix.shape[1])).all()
        assert (np.diff(matrix.indptr) >= 0).all()
        assert matrix.indptr[-1] == len(matrix.indices) == len(matrix.data)
        assert np.isfinite(matrix.data).all()
    for rows in (graph.X, graph.y, graph.split):
        assert rows is None or rows.shape[0] == graph.n_nodes
    assert graph.split is None or np.isin(graph.split, (-1, 0, 1, 2)).all()
    assert graph.y is None or graph.y.min(initial=0) >= -1
    assert hasattr(graph.X, "indices") or graph.X is None or np.isfinite(graph.X).all()
    graph.A @ np.ones((graph.n_nodes, 2), np.float32)
    graph.with_edges("undirected").normalise("gcn")
    if graph.X is not None and graph.n_features < 1 << 21:
        graph.X @ np.ones((graph.n_features, 2), np.float32)
    graph.describe()


def plant() -> None:
    """A reader that lets the exception of a broken file through."""
    from spgnn import data

    read = data.load_graph

    def careless(path, **options):
        try:
            return read(path, **options)
        except Exception as error:
            raise KeyError(path) from error

    data.load_graph = careless
