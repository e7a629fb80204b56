"""The manifest of a partition folder: written last, with its own SHA-256; read, with types and sums that are checked."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np

from ...atomic import open_regular
from ...config.names import Task
from ...data.manifest import check_types, checked_manifest, seal
from ...errors import PartitionError, is_integer
from ...graph import task_of

FORMAT, VERSION = "spgnn-partition", 4
KEYS = {
    int: "n_nodes k n_features seed hops n_classes",
    str: "method graph_digest fingerprint owner_sha256 sha256",
    dict: "metrics edge_meta? node_types? files",
    list: "parts classes? feature_names? train",
    float: "balance seconds?",
}


def write_manifest(folder: Path, entries: dict) -> None:
    """Write manifest.json, which marks a folder as a partition, with the SHA-256 of the files beside it."""
    entries = entries | {"files": {path.name: sha256_of_file(path) for path in sorted(folder.glob("*.npy"))}}
    with open(folder / "manifest.json", "w", encoding="utf-8") as file:
        json.dump(seal({"format": FORMAT, "version": VERSION} | entries), file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def checked_parts_manifest(path: Path, data: bytes) -> dict:
    """Return what a manifest.json holds. Raises: PartitionError where it is damaged, or does not describe its parts."""
    again = lambda text: PartitionError(f"{text}; write the partition again")
    manifest = checked_manifest(path, data, (FORMAT, VERSION), KEYS, again)
    is_count = lambda counts: (
        counts is None or (isinstance(counts, list) and all(is_integer(n) and n >= 0 for n in counts))
    )
    if len(manifest["train"]) != manifest["k"] or not all(map(is_count, manifest["train"])):
        raise again(f"{path}: train has not the counts of each of {manifest['k']} parts")
    if (names := manifest.get("feature_names")) is not None and len(names) != manifest["n_features"]:
        raise again(f"{path}: feature_names has not the names of {manifest['n_features']} columns")
    check_types(path, manifest.get("edge_meta") or {}, {list: "edge_features?"}, again)
    parts = manifest["parts"]
    try:
        n_nodes = sum(of_part["own"]["shape"][0] for of_part in parts)
    except (LookupError, TypeError) as error:
        raise again(f"{path}: a part is not described as expected ({error!r})") from None
    if (len(parts), n_nodes) != (manifest["k"], manifest["n_nodes"]):
        raise again(f"{path}: {len(parts)} parts of {n_nodes} nodes; expected {manifest['k']} of {manifest['n_nodes']}")
    return manifest


def task_of_parts(manifest: dict) -> Task:
    """Return what the labels of the parts are, by the shape and dtype of the first part's."""
    labels = manifest["parts"][0].get("labels")
    return "classes" if labels is None else task_of(np.empty([0] * len(labels["shape"]), labels["dtype"]))


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hex digits."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
