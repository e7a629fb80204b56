"""Partition folders as earlier versions wrote them."""

import json
from pathlib import Path


def as_version_1(folder: Path) -> None:
    """Make a folder what version 1 wrote for a graph in memory: no halo, no sums."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in ("n_classes", "hops", "train"):
        del manifest[name]
    for number, files in enumerate(manifest["parts"]):
        for name in [name for name in files if name.startswith("halo") or name == "sums"]:
            del files[name]
            (folder / f"part-{number:05d}" / f"{name}.npy").unlink()
    manifest["version"] = 1
    (folder / "manifest.json").write_text(json.dumps(manifest))
