"""The files that options name, and those that a training writes into its --out folder."""

from __future__ import annotations

import re
from pathlib import Path

CHECKPOINT = re.compile("epoch-[0-9]{6,}")  # name of the folder of one
# In the order in which they are written. env.json is the first to come and the last to go: it marks the folder of a run.
RUN_FILES = ("env.json", "config.toml", "metrics.jsonl", "details.json", "split.npy", "summary.json", "predictions.npy")
NAMED_FILE = "predictions.csv"  # where nodes or classes have names
PARTS_FILE = "parts.jsonl"  # of runs with a personal phase


def split_file(which: str) -> str:
    """Return the file that --split names, s.npy, ./split or nodes.csv:fold; "" for auto, given, random and numbers."""
    return which if "." in which or "/" in which else ""


def input_files(config) -> dict[str, str]:
    """Return the files beside GRAPH that options name: option -> path, or ""."""
    return {"features": config.features, "labels": config.labels, "split": split_file(config.split)}


def is_of_run(folder: Path, path: Path) -> bool:
    """Return whether a path is the folder of a run, or a file or folder that a training writes into it."""
    folder, path = folder.resolve(), path.resolve()
    checkpoints = (folder / "checkpoints").resolve()
    return path in (folder, *(folder / name for name in (*RUN_FILES, PARTS_FILE, NAMED_FILE))) or checkpoints in (
        path,
        *path.parents,
    )
