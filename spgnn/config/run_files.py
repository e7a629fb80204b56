"""The files that a training writes into its --out folder."""

from __future__ import annotations

from pathlib import Path

RUN_FILES = ("config.toml", "env.json", "metrics.jsonl", "summary.json", "predictions.npy")


def is_of_run(folder: Path, path: Path) -> bool:
    """Return whether a path is the folder of a run, or a file or folder that a training writes into it."""
    folder, path = folder.resolve(), path.resolve()
    checkpoints = (folder / "checkpoints").resolve()
    return path in (folder, *(folder / name for name in RUN_FILES)) or checkpoints in (path, *path.parents)
