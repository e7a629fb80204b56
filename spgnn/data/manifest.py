"""The manifest of a folder, of a graph, of parts or of a checkpoint: format, version, keys of their types, and a seal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST = 2**62  # of a count


def checked_manifest(
    path: Path, raw: bytes, known: tuple[str, tuple[int, ...]], types: dict, fault: Callable[[str], Exception]
) -> dict:
    """Return the manifest that raw holds.

    Args:   known  (format, versions).
            types  see `check_types`; fault: of a message, the exception to raise.
    """
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise fault(f"{path}: not JSON: {error}") from None
    format, versions = known
    if not isinstance(manifest, dict) or manifest.get("format") != format:
        raise fault(f'{path}: not the manifest of a {format.removeprefix("spgnn-")}; expected "format": "{format}"')
    version = manifest.get("version")
    if version not in versions or isinstance(version, bool):
        read = f"version {versions[0]}" if len(versions) == 1 else f"versions {versions[0]} to {versions[-1]}"
        raise fault(f"{path}: format version {version!r}; this spgnn reads {read}")
    check_types(path, manifest, types, fault, version)
    if not is_sealed(manifest):
        raise fault(f"{path}: does not have the SHA-256 that it was written with")
    return manifest


def check_types(path: Path, values: dict, types: dict, fault: Callable[[str], Exception], version: int = 0) -> None:
    """Raise fault(message) unless the keys of each type have it.

    Args:   types  the keys of each type; integers are from 0 to 2^62: `key?` may be absent, `key@2` is there from version 2 on.
    """
    for kind, words in types.items():
        for key, _, first in (word.partition("@") for word in words.split()):
            value = values.get(key.rstrip("?"))
            if version < int(first or 0) or (key.endswith("?") and value is None):
                continue
            is_kind = isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)
            if not is_kind or (kind is int and not 0 <= value <= MOST):
                raise fault(f"{path}: {key.rstrip('?')} = {str(value)[:80]!r}; expected {kind.__name__}")


def seal(manifest: dict, default: Callable[[Any], Any] | None = None) -> dict:
    """Return a manifest, as JSON has it, with its own SHA-256; default: of json.dumps."""
    value = {
        name: entry for name, entry in json.loads(json.dumps(manifest, default=default)).items() if name != "sha256"
    }
    return value | {"sha256": hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()}


def is_sealed(manifest: dict) -> bool:
    """Whether a manifest has the SHA-256 that it was written with; those of earlier versions have none."""
    return "sha256" not in manifest or seal(manifest)["sha256"] == manifest["sha256"]
