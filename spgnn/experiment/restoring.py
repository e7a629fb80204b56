"""The newest checkpoint that is whole: what it was made on, and the state of a training that it holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..config import TrainConfig
from ..data.manifest import check_types
from ..dist import Communicator
from ..dist.consistency import digest
from ..distgraph import DistGraph, Parts
from ..errors import CheckpointError, UsageError, from_root
from ..graph import ColumnNames
from ..training.history import is_scored
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
KEYS = {dict: "history graph options"}  # of a checkpoint with which a training continues
CONTINUE = "give the graph that the run was trained on"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder epoch-NNNNNN whose files are as they were written, and its manifest."""

    path: Path
    manifest: dict[str, Any]

    def state(self) -> dict[str, Any]:
        """Return the state_dict of a Trainer. Raises: CheckpointError naming the file."""
        manifest = self.manifest
        model, history = self._tensors(WEIGHTS), manifest["history"]
        lines = read_bytes(self.path / HISTORY, manifest).decode().splitlines()
        restored = {name: restore_nan(history[name]) for name in ("train", "val", "test", "scores", "per_class")}
        return {
            "model": model,
            "optimizer": self._tensors(OPTIMIZER),
            "best": self._tensors(BEST) if BEST in manifest["files"] else model,
            "epoch": manifest["epoch"],
            "history": history | restored | {"records": [_record(json.loads(line)) for line in lines]},
            "unscored": manifest["unscored"],
        }

    def _tensors(self, name: str) -> dict[str, torch.Tensor]:
        return to_tensors(read_bytes(self.path / name, self.manifest), self.path / name)


def found_checkpoint(config: TrainConfig, comm: Communicator, say: Say = None) -> Checkpoint:
    """Return the checkpoint that --resume continues from.

    Raises: CheckpointError without one, UsageError where it has more epochs than --epochs. Collective.
    """
    found = newest(comm, Path(config.out) / "checkpoints", say)
    if found is None:
        raise CheckpointError(f"--resume {config.resume}: has no checkpoint; train again with --out {config.resume}")
    if (epochs := found.manifest["epoch"]) > config.epochs:
        raise UsageError(
            f"--epochs {config.epochs} is less than the {epochs} that {config.resume} has; give that or more"
        )
    return found


def newest(comm: Communicator, folder: Path, say: Say = None) -> Checkpoint | None:
    """Return newest_whole as rank 0 finds it. Collective."""

    def found() -> tuple[str, dict[str, Any]] | None:
        whole = newest_whole(folder, say)
        return None if whole is None else (str(whole.path), whole.manifest)

    whole = from_root(comm, found)
    return None if whole is None else Checkpoint(Path(whole[0]), whole[1])


def newest_whole(folder: Path, say: Say = None) -> Checkpoint | None:
    """Return the newest checkpoint of which every file is as it was written; None without any.

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
            return Checkpoint(path, manifest)
        except CheckpointError as error:
            problems.append(str(error))
            if say is not None:
                say(f"spgnn: damaged checkpoint: {error}; taking the one before")
    if not found:
        return None
    raise CheckpointError(f"{folder}: a training can go on from no checkpoint here: {'; '.join(problems)}")


def graph_facts(graph: DistGraph | Parts) -> dict[str, Any]:
    """Return sizes and fingerprints of a graph, the same for any ranks and parts: the JSON object `graph` of a checkpoint.

    edges        digest of the structure, weights and attributes; fingerprint: of features, labels and splits; neither of
                 a part that Parts.open returns.
    parts        of Parts alone: k and a digest of the owners.
    """
    known = graph.source.facts if isinstance(graph, Parts) else graph
    facts: dict[str, Any] = {"nodes": known.n_nodes, "features": known.n_features, "classes": known.n_classes}
    if known.fingerprint:
        nonzeros, edges, fingerprint = known.fingerprint.split("-")
        facts |= {"nonzeros": int(nonzeros), "fingerprint": fingerprint, "edges": edges}
    if isinstance(graph, Parts):
        facts["parts"] = f"{graph.k}-{digest(graph.source.partition.owner_N)}"
    return facts


def made_on(checkpoints: Path) -> tuple[Path, dict[str, Any]]:
    """Return the newest checkpoint that has graph_facts, and these; {} without any, as in a folder of save_run."""
    found = ((path, read_manifest(path).get("graph")) for path in reversed(list_checkpoints(checkpoints)))
    return next(((path, facts) for path, facts in found if facts), (checkpoints, {}))


def check_graph(path: Path, before: dict[str, Any], here: dict[str, Any], fix: str = CONTINUE) -> None:
    """Raise CheckpointError unless a checkpoint was made on this graph.

    Args: before  graph_facts of the checkpoint, {} if it has none; here: of this graph; fix: the advice of the error.
    """
    names = [name for name in here if before and name != "parts" and before.get(name) != here[name]]
    if names:
        what = {"fingerprint": "fingerprint of features, labels and split"} if names == ["fingerprint"] else {}
        differ = ", ".join(f"{what.get(name, name)} {before.get(name)}, here {here[name]}" for name in names)
        raise CheckpointError(f"{path} was made on another graph ({differ}); {fix}")


def check_names(path: Path, before: ColumnNames, here: ColumnNames, fix: str = CONTINUE) -> None:
    """Raise CheckpointError where a graph has other names of columns than a checkpoint was made on."""
    if difference := before.difference(here):
        raise CheckpointError(f"{path} was made on other columns ({difference}); {fix}")


def check_parts(path: Path, before: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise CheckpointError where the models of a checkpoint were averaged over other parts than here."""
    if "parts" in before and "parts" in here and before["parts"] != here["parts"]:
        raise CheckpointError(
            f"{path} was trained on other parts (k and owners {before['parts']}, here {here['parts']}), on which averaging "
            "depends; give the same --partition"
        )


def _record(record: dict) -> dict:
    """Return a record with NaN for the scores of splits without nodes."""
    if not is_scored(record):
        return record
    return record | {name: restore_nan(record[name]) for name in ("train", "val", "test")}
