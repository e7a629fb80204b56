"""The files of partition folders, and folders with changes that their manifests know of."""

import hashlib
import json
from pathlib import Path

import numpy as np

from spgnn.data.manifest import seal


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def redigested(folder: Path) -> None:
    """Give the manifest the SHA-256 of the files as they now are."""

    def edit(manifest):
        for number, files in enumerate(manifest["parts"]):
            for name, entry in files.items():
                entry["sha256"] = digest_of(folder / f"part-{number:05d}" / f"{name}.npy")
        manifest["files"] = {name: digest_of(folder / name) for name in manifest["files"]}

    resealed(folder, edit)


def resealed(folder, edit):
    """Change the manifest, and give it the seal of what it then says."""
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(manifest)
    (folder / "manifest.json").write_text(json.dumps(seal(manifest)))


def replaced(folder, name, change):
    """Replace an array of part 1, and describe it in the manifest as it then is."""
    path = folder / "part-00001" / f"{name}.npy"
    np.save(path, change(np.load(path)))
    array = np.load(path)
    entry = {"dtype": array.dtype.str, "shape": array.shape, "sha256": digest_of(path)}
    resealed(folder, lambda manifest: manifest["parts"][1].update({name: entry}))
