"""Checkpoints: safetensors, lines of JSON and a sealed manifest in a folder that appears whole or not at all.

epoch-000060/manifest.json            sizes and SHA-256 of every file, and its own SHA-256
             model.safetensors        weights after this epoch; the only tensors of a checkpoint that is not continued
             optimizer.safetensors    state of the optimizer
             best.safetensors         weights of the best epoch, where it is another one
             history.jsonl            the record of every epoch
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from ..atomic import finite, new_file, new_folder, read_regular, sync, write_text
from ..config import CHECKPOINT, TrainConfig
from ..data.manifest import check_types, is_sealed, seal
from ..data.save import write_npy
from ..dist import Communicator
from ..dist.consistency import digest
from ..distgraph import DistGraph, Parts
from ..errors import CheckpointError, SpgnnError, UsageError, from_root, is_number
from ..graph import ColumnNames
from ..layers.registry import ModelSpec
from ..training.history import is_scored

FORMAT = 2
MANIFEST, WEIGHTS, HISTORY = "manifest.json", "model.safetensors", "history.jsonl"
OPTIMIZER, BEST = "optimizer.safetensors", "best.safetensors"
KEYS = {int: "epoch", dict: "files model? unscored? names?", list: "python?", str: "sha256 metric? task?"}
OF_A_FILE = {int: "bytes", str: "sha256"}
Files = Mapping[str, Callable[[], bytes]]  # content by name, made when it is written


def name_of(epoch: int) -> str:
    """Return the name of the folder of an epoch's checkpoint."""
    return f"epoch-{epoch:06d}"


def to_bytes(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return tensors as a safetensors file, which refuses tensors that share memory: those are copied."""
    stored: dict[str, torch.Tensor] = {}
    for name, value in tensors.items():
        value = value.detach().cpu().contiguous()
        starts = [other.untyped_storage().data_ptr() for other in stored.values()]
        stored[name] = value.clone() if value.untyped_storage().data_ptr() in starts else value
    return save(stored)


def to_tensors(content: bytes, path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file. Raises: CheckpointError naming the file."""
    try:
        return load(content)
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None


def save_checkpoint(folder: Path, epoch: int, files: Files, manifest: dict) -> None:
    """Write folder/epoch-000060.

    Args:   manifest  JSON values: `val`, the score that decides which is best, `model`, the ModelSpec as a dict or None
                      for a custom model, and what else a training needs to go on.
    Raises: ResourceError naming the folder. A kill at any moment leaves complete checkpoints only.
    """
    with new_folder(folder / name_of(epoch)) as new:
        write_manifest(
            new, epoch, {name: write_bytes(new / name, content()) for name, content in files.items()}, manifest
        )


def write_bytes(path: Path, content: bytes) -> dict:
    """Write and sync a file of a checkpoint, and return its entry of the manifest."""
    path.write_bytes(content)  # safetensors' own save_file ignores the umask
    sync(path)
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def write_manifest(folder: Path, epoch: int, files: Mapping[str, dict], manifest: dict) -> None:
    """Write the manifest, the last file of a checkpoint."""
    value = seal(finite({"format": FORMAT, "epoch": epoch} | manifest | {"files": dict(files)}))
    write_bytes(folder / MANIFEST, _json(value).encode())


def read_manifest(folder: Path) -> dict:
    """Return the manifest of a checkpoint. Raises: CheckpointError where it is damaged, or another checkpoint's."""
    manifest = read_json(folder / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"{folder / MANIFEST}: checkpoint format {manifest.get('format')!r}; this spgnn reads format {FORMAT}, train again"
        )
    check_types(folder / MANIFEST, manifest, KEYS, CheckpointError)
    if not is_sealed(manifest):
        raise CheckpointError(f"{folder / MANIFEST}: does not have the SHA-256 that it was written with")
    for name, entry in manifest["files"].items():
        if Path(name).name != name:
            raise CheckpointError(f"{folder / MANIFEST}: names {name!r}; expected files of its own folder")
        check_types(folder / MANIFEST, entry if isinstance(entry, dict) else {}, OF_A_FILE, CheckpointError)
    if folder.name != name_of(epoch := manifest["epoch"]):
        raise CheckpointError(f"{folder / MANIFEST}: is the manifest of epoch {epoch}; expected that of {folder.name}")
    return manifest


def read_bytes(path: Path, manifest: dict) -> bytes:
    """Return the content of a file of a checkpoint.

    Raises: CheckpointError where it is absent, or not the file that the manifest describes.
    """
    try:
        content = read_regular(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None
    entry = manifest["files"].get(path.name)
    if entry is None:
        raise CheckpointError(f"{path}: is not a file of this checkpoint, says {MANIFEST}")
    if len(content) != entry["bytes"] or hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise CheckpointError(f"{path}: does not have the size and SHA-256 that {MANIFEST} has for it")
    return content


def load_checkpoint(folder: Path) -> tuple[dict[str, torch.Tensor], dict]:
    """Return the weights and the manifest of one checkpoint folder. Raises: CheckpointError naming the file."""
    manifest = read_manifest(folder)
    return to_tensors(read_bytes(folder / WEIGHTS, manifest), folder / WEIGHTS), manifest


def prune(folder: Path, keep: Iterable[int]) -> None:
    """Remove all checkpoints but those of some epochs."""
    kept = {name_of(epoch) for epoch in keep}
    for path in list_checkpoints(folder):
        if path.name not in kept:
            path.unlink() if path.is_symlink() else shutil.rmtree(path)


def model_spec(folder: Path, manifest: dict) -> ModelSpec:
    """Return family and arguments of the model of a checkpoint.

    Raises: CheckpointError for a custom model, and for one that this version cannot build.
    """
    if manifest.get("model") is None:
        raise CheckpointError(
            f"{folder} holds a custom model, which only its own code can rebuild; predict in Python: "
            "model.load_state_dict(spgnn.experiment.checkpoint.load_checkpoint(FOLDER)[0]), then model(dgraph.A, dgraph.X)"
        )
    try:
        spec = ModelSpec(**manifest["model"])
        spec.build()
    except (TypeError, ValueError, LookupError, AttributeError, SpgnnError) as error:
        raise CheckpointError(
            f"{folder / MANIFEST}: no model of this version ({error}); train again, or predict with the script that "
            "registers its family"
        ) from None
    return spec


def best_checkpoint(folder: Path) -> Path:
    """Return the checkpoint with the best validation score, the first of equals; the newest without scores."""
    found = list_checkpoints(folder)
    if not found:
        raise CheckpointError(f"{folder}: no checkpoint; expected epoch-NNNNNN/{WEIGHTS} of `spgnn train --out`")
    vals = [_val_of(path) for path in found]
    scored = [val for val in vals if val is not None]
    return found[vals.index(max(scored))] if scored else found[-1]


def _val_of(path: Path) -> float | None:
    val = read_manifest(path).get("val")
    if val is not None and not is_number(val):
        raise CheckpointError(f"{path / MANIFEST}: val = {val!r}; expected a number or null")
    return val


def read_json(path: Path) -> dict:
    """Return the object of a JSON file.

    Raises: CheckpointError naming the file.
    """
    try:
        value = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds {type(value).__name__}; expected an object")
    return value


def write_json(path: Path, value: dict) -> None:
    """Write a JSON file, whole or not at all. NaN becomes null."""
    write_text(path, _json(value))


def write_array(path: Path, array: np.ndarray, option: str = "") -> None:
    """Write an .npy file, whole or not at all; option: named in errors."""
    with new_file(path, option) as file:
        write_npy(file, array)


def _json(value: dict) -> str:
    return json.dumps(finite(value), indent=1, allow_nan=False) + "\n"


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, the newest last; not what else is in it, such as a copy of one."""
    found = [path for path in folder.glob("epoch-*") if CHECKPOINT.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name[6:]))


def restore_nan(value):
    """Return scores of JSON with NaN where null stands for it."""
    if isinstance(value, dict):
        return {name: restore_nan(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [restore_nan(entry) for entry in value]
    return math.nan if value is None else value


Say = Callable[[str], Any] | None
STATE_KEYS = {dict: "history graph options"}  # of a checkpoint with which a training continues
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
            check_types(path / MANIFEST, manifest, STATE_KEYS, CheckpointError)
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
