"""The manifest of a folder, of a graph, of parts or of a checkpoint: format, version, keys of their types, and a seal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST = 2**62  # of a count


def checked_manifest(
    path: Path, raw: bytes, known: tuple[str, int], types: dict, fault: Callable[[str], Exception]
) -> dict:
    """Return the manifest that raw holds.

    Args:   known  (format, version).
            types  see `check_types`; fault: of a message, the exception to raise.
    """
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise fault(f"{path}: not JSON: {error}") from None
    format, known_version = known
    if not isinstance(manifest, dict) or manifest.get("format") != format:
        raise fault(f'{path}: not the manifest of a {format.removeprefix("spgnn-")}; expected "format": "{format}"')
    version = manifest.get("version")
    if version != known_version or isinstance(version, bool):
        raise fault(f"{path}: format version {version!r}; this spgnn reads version {known_version}")
    check_types(path, manifest, types, fault)
    if not is_sealed(manifest):
        raise fault(f"{path}: does not have the SHA-256 that it was written with")
    return manifest


def check_types(path: Path, values: dict, types: dict, fault: Callable[[str], Exception]) -> None:
    """Raise fault(message) unless the keys of each type have it.

    Args:   types  the keys of each type; integers are from 0 to 2^62; `key?` may be absent.
    """
    for kind, words in types.items():
        for key in words.split():
            value = values.get(key.rstrip("?"))
            if key.endswith("?") and value is None:
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
    """Whether a manifest has the SHA-256 that it was written with."""
    return seal(manifest)["sha256"] == manifest.get("sha256")
