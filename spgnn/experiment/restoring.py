"""The newest checkpoint that is whole, and the state of a training that it holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..config import TrainConfig
from ..data.manifest import check_types
from ..errors import CheckpointError, UsageError, together
from .checkpoint import (
    BEST,
    HISTORY,
    MANIFEST,
    OPTIMIZER,
    WEIGHTS,
    list_checkpoints,
    read_bytes,
    read_manifest,
    restore_nan,
    to_tensors,
)

Say = Callable[[str], Any] | None
Found = tuple[Path, dict]  # folder and manifest of a checkpoint
KEYS = {dict: "history graph options"}  # of a checkpoint with which a training continues


@contextmanager
def as_described(path: Path) -> Iterator[None]:
    """Raise CheckpointError for what Python raises where the content of a manifest or file is not what is expected."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise CheckpointError(
            f"{path / MANIFEST}: is not as this version writes it ({error!r}); train again"
        ) from error


def found_checkpoint(config: TrainConfig, comm, say: Say = None) -> Found:
    """Return the checkpoint that --resume continues from.

    Raises: CheckpointError without one, UsageError where it has more epochs than --epochs. Collective.
    """
    found = share_newest(comm, Path(config.out) / "checkpoints", say)
    if found is None:
        raise CheckpointError(f"--resume {config.resume}: has no checkpoint; train again with --out {config.resume}")
    if found[1]["epoch"] > config.epochs:
        raise UsageError(
            f"--epochs {config.epochs} is less than the {found[1]['epoch']} that {config.resume} has; give that or more"
        )
    return found


def share_newest(comm, folder: Path, say: Say = None) -> Found | None:
    """Return newest_whole as rank 0 finds it. Collective."""
    found = together(comm, newest_whole, folder, say, root=0)
    path, manifest = comm.all_gather_json([str(found[0]), found[1]] if found else [None, None])[0]
    return None if path is None else (Path(path), manifest)


def newest_whole(folder: Path, say: Say = None) -> Found | None:
    """Return the newest checkpoint of which every file is as it was written, and its manifest; None without any.

    Args:   say  called with a line for each one that is damaged.
    Raises: CheckpointError if there are checkpoints and a training can go on from none.
    """
    found, problems = list_checkpoints(folder), []
    for path in reversed(found):
        try:
            manifest = read_manifest(path)
            if "history" not in manifest:
                problems.append(f"{path.name} has weights only")
                continue
            check_types(path / MANIFEST, manifest, KEYS, CheckpointError)
            check_types(path / MANIFEST, manifest.get("unscored") or manifest, {int: "epoch"}, CheckpointError)
            for name in manifest["files"]:
                read_bytes(path / name, manifest)
        except CheckpointError as error:
            problems.append(str(error))
            if say is not None:
                say(f"spgnn: damaged checkpoint: {error}; taking the one before")
            continue
        return path, manifest
    if not found:
        return None
    raise CheckpointError(f"{folder}: a training can go on from no checkpoint here: {'; '.join(problems)}")


def read_state(path: Path, manifest: dict) -> dict[str, Any]:
    """Return the state_dict of a Trainer. Raises: CheckpointError naming the file."""
    tensors = lambda name: to_tensors(read_bytes(path / name, manifest), path / name)
    model = tensors(WEIGHTS)
    lines = read_bytes(path / HISTORY, manifest).decode().splitlines()
    history = manifest["history"]
    restored = {name: restore_nan(history[name]) for name in ("train", "val", "test", "scores", "per_class")}
    return {
        "model": model,
        "optimizer": tensors(OPTIMIZER),
        "best": tensors(BEST) if BEST in manifest["files"] else model,
        "epoch": manifest["epoch"],
        "history": history | restored | {"records": [_record(json.loads(line)) for line in lines]},
        "unscored": manifest["unscored"],
    }


def _record(record: dict) -> dict:
    """Return a record with NaN for the scores of splits without nodes."""
    if record["train"] is None:  # not scored
        return record
    return record | {name: restore_nan(record[name]) for name in ("val", "test")}
