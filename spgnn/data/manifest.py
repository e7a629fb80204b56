"""The manifest of a folder, of a graph or of parts: its format, its version, and keys of the types that they have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path


def checked_manifest(
    path: Path, raw: bytes, known: tuple[str, tuple[int, ...]], types: dict, fault: Callable[[str], Exception]
) -> dict:
    """Return the manifest that raw holds.

    Args:   known  (format, versions).
            types  the keys of each type, integers of 0 or more: `key?` may be absent, `key@2` is there from version 2 on.
            fault  of a message, the exception to raise.
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
    for kind, words in types.items():
        for key, _, first in (word.partition("@") for word in words.split()):
            value = manifest.get(key.rstrip("?"))
            if version < int(first or 0) or (key.endswith("?") and value is None):
                continue
            is_kind = isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)
            if not is_kind or (kind is int and value < 0):
                raise fault(f"{path}: {key.rstrip('?')} = {str(value)[:80]!r}; expected {kind.__name__}")
    return manifest
