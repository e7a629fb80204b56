"""Partition folders as earlier versions wrote them, and with changes that their manifests know of."""

import hashlib
import json
from pathlib import Path

import numpy as np

from spgnn.data.manifest import seal


def as_version_1(folder: Path) -> None:
    """Make a folder what version 1 wrote for a graph in memory: no halo, no sums."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in ("n_classes", "hops", "train", "sha256", "files"):
        del manifest[name]
    for number, files in enumerate(manifest["parts"]):
        for name in [name for name in files if name.startswith("halo") or name == "sums"]:
            del files[name]
            (folder / f"part-{number:05d}" / f"{name}.npy").unlink()
    manifest["version"] = 1
    (folder / "manifest.json").write_text(json.dumps(manifest))


def without_digests(folder: Path) -> None:
    """Make the manifest what earlier versions of version 2 wrote: without the SHA-256 of files, and of itself."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in [entry for files in manifest["parts"] for entry in files.values()]:
        entry.pop("sha256", None)
    for name in ("sha256", "files"):
        manifest.pop(name, None)
    (folder / "manifest.json").write_text(json.dumps(manifest | {"version": 2}))


def resealed(folder, edit):
    """Change the manifest, and give it the seal of what it then says."""
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(manifest)
    (folder / "manifest.json").write_text(json.dumps(seal(manifest)))


def replaced(folder, name, change):
    """Replace an array of part 1, and describe it in the manifest as it then is."""
    path = folder / "part-00001" / f"{name}.npy"
    np.save(path, change(np.load(path)))
    array, sha = np.load(path), hashlib.sha256(path.read_bytes()).hexdigest()
    entry = {"dtype": array.dtype.str, "shape": array.shape, "sha256": sha}
    resealed(folder, lambda manifest: manifest["parts"][1].update({name: entry}))
