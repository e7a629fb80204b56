"""Pickles that would leave a mark, in every file that a command reads: none is run."""

import io
import os
import pickle
import random
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
from attack import isolated
from mutated_files import COMMANDS, load, run_in, write_seeds

QUICK, FULL = 150, 1_000_000  # files that are replaced, of all files and payloads


class Canary:
    """Unpickling it makes a folder."""

    def __init__(self, marker: Path):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def npy(marker: Path) -> bytes:
    np.save(out := io.BytesIO(), np.array([Canary(marker)] * 3, object), allow_pickle=True)
    return out.getvalue()


def npz(marker: Path) -> bytes:
    names = (
        "data",
        "indices",
        "indptr",
        "shape",
        "format",
        "x",
        "y",
        "edges",
        "node_features",
        "node_labels",
        "matrix",
    )
    np.savez(out := io.BytesIO(), **{name: np.array([Canary(marker)] * 3, object) for name in names})
    return out.getvalue()


def torch_file(marker: Path) -> bytes:
    import torch

    torch.save({"state": Canary(marker)}, out := io.BytesIO())
    return out.getvalue()


PAYLOADS = {f"protocol {p}": lambda marker, p=p: pickle.dumps([Canary(marker)], p) for p in (0, 2, 5)}
PAYLOADS |= {"npy": npy, "npz": npz, "torch": torch_file}


def attack(seed: int, amount: int):
    """Replace every file of every kind, by every payload; return how many were tried, and which pickles were run."""
    root = Path(os.environ["TMPDIR"]) / "seeds"
    root.mkdir()
    try:
        index = write_seeds(root)
        cases = [(entry, name, payload) for entry in index for name in files(root, entry) for payload in PAYLOADS]
        random.Random(seed).shuffle(cases)
        failures = [
            f"{entry['kind']}, {name} replaced by {payload}: {said}"
            for (entry, name, payload), found in isolated(lambda case: one(root, *case), cases[:amount])
            if (said := found.get("crash") or found["wrong"])
        ]
    finally:
        shutil.rmtree(root)
    return {
        "files": len(cases[:amount]),
        "kinds": len(index),
        "pickles run": sum("was run" in f for f in failures),
    }, failures


def files(root: Path, entry: dict) -> list[str]:
    """Return the names of the files of one kind."""
    home = root / entry["home"]
    pattern = COMMANDS[entry["kind"]][1] if entry["kind"] in COMMANDS else "**/*"
    return [str(path.relative_to(home)) for path in sorted(home.glob(pattern)) if path.is_file()]


def one(root: Path, entry: dict, name: str, payload: str) -> dict:
    """Replace one file by a payload and read it; return what is wrong."""
    shutil.rmtree(home := root / "case", ignore_errors=True)  # of a case that did not end
    shutil.copytree(root / entry["home"], home)
    marker = home / "executed"
    (home / name).write_bytes(PAYLOADS[payload](marker))
    if entry["kind"] in COMMANDS:
        wrong = run_in(home, COMMANDS[entry["kind"]][2]).fault()
    else:
        outcome, message, _ = load(home / entry["path"], entry["kind"], None)
        wrong = message[-500:] if outcome in ("crash", "wrong") else ""
    wrong = "the pickle was run" if marker.exists() else wrong
    shutil.rmtree(home)
    return {"wrong": wrong}


def plant() -> None:
    """What the reader of Planetoid's pickles refuses is loaded."""
    from spgnn.data.readers import planetoid

    read = planetoid.load_pickle

    def careless(path):
        try:
            return read(path)
        except Exception:
            with suppress(Exception):
                pickle.loads(Path(path).read_bytes())
            raise

    planetoid.load_pickle = careless
