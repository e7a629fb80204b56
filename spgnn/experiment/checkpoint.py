"""Checkpoints: safetensors and a JSON manifest in a folder that appears whole or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from ..atomic import new_file, new_folder, sync, write_text
from ..config import TrainConfig
from ..errors import CheckpointError, SpgnnError
from ..layers.registry import ModelSpec

WEIGHTS, MANIFEST = "model.safetensors", "manifest.json"


def save_checkpoint(folder: Path, epoch: int, state: dict[str, torch.Tensor], manifest: dict) -> Path:
    """Write folder/epoch-000060 and remove all but the best and the newest; return its path.

    Args: state     weights by name.
          manifest  JSON values: `val`, the score that decides which is best, and `model`, the ModelSpec as a dict,
                    None for a custom model.
    A kill at any moment leaves complete checkpoints only.
    """
    final = folder / f"epoch-{epoch:06d}"
    weights = save({name: value.detach().contiguous().clone() for name, value in state.items()})
    with new_folder(final) as new:
        for name, content in ((WEIGHTS, weights), (MANIFEST, _json({"format": 2, "epoch": epoch} | manifest).encode())):
            (new / name).write_bytes(content)  # save_file ignores the umask
            sync(new / name)
    best = best_checkpoint(folder)
    newest = _checkpoints(folder)[-1]
    for old in _checkpoints(folder):
        if old not in (best, newest, final):
            shutil.rmtree(old)
    return final


def load_checkpoint(folder: Path) -> tuple[dict[str, torch.Tensor], dict]:
    """Return the weights and the manifest of one checkpoint folder.

    Raises: CheckpointError naming the file.
    """
    manifest = read_json(folder / MANIFEST)
    try:
        return load_file(folder / WEIGHTS), manifest
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder / WEIGHTS}: cannot be read: {error}") from None


def model_spec(folder: Path, manifest: dict, config: TrainConfig) -> ModelSpec:
    """Return family and arguments of the model of a checkpoint; format 1 has widths, the rest is in config.toml.

    Raises: CheckpointError for a custom model, and for one that this version cannot build.
    """
    found, widths = manifest.get("model"), manifest.get("widths")
    if found is None and widths is None:
        raise CheckpointError(
            f"{folder} holds a custom model, which only its own code can rebuild; predict in Python: "
            "model.load_state_dict(spgnn.experiment.checkpoint.load_checkpoint(FOLDER)[0]), then model(dgraph.A, dgraph.X)"
        )
    try:
        spec = ModelSpec.of(config, widths[0], widths[-1]) if found is None else ModelSpec(**found)
        spec.build()
    except (TypeError, ValueError, LookupError, AttributeError, SpgnnError) as error:
        raise CheckpointError(f"{folder / MANIFEST}: no model of this version ({error}); train again") from None
    return spec


def best_checkpoint(folder: Path) -> Path:
    """Return the checkpoint with the best validation score, the first of equals; the newest without scores."""
    found = _checkpoints(folder)
    if not found:
        raise CheckpointError(
            f"{folder}: no checkpoint; expected epoch-NNNNNN/{WEIGHTS}, as `spgnn train --out` writes it"
        )
    vals = [read_json(path / MANIFEST).get("val") for path in found]
    scored = [val for val in vals if val is not None]
    return found[vals.index(max(scored))] if scored else found[-1]


def read_json(path: Path) -> dict:
    """Return the object of a JSON file.

    Raises: CheckpointError naming the file.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
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
        np.save(file, array, allow_pickle=False)


def _json(value: dict) -> str:
    return json.dumps(finite(value), indent=1, allow_nan=False) + "\n"


def finite(value):
    """Return the value with NaN and infinities as None, which JSON can say."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and value - value != 0 else value


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("epoch-*") if path.is_dir())
