"""--out auto and none: a new folder runs/GRAPH-NUMBER, or no folder."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ..config import TrainConfig
from ..data.load import is_built_in
from ..data.readers.make_graph import graph_name
from ..errors import ResourceError, UsageError, from_root

HOME = Path("runs")
LONGEST = 60  # characters of a graph's name


@contextmanager
def resolved_out(source: str, config: TrainConfig, comm) -> Iterator[TrainConfig]:
    """Yield the config with a folder as `out`: for auto a new one, removed if it is empty at the end; "" for none.

    The number is the first that is free; rank 0 makes the folder, so that no other training gets the same one.
    Raises: ResourceError where no folder can be made, UsageError for config.overwrite. Collective.
    """
    if config.out != "auto":
        yield replace(config, out="") if config.out == "none" else config
        return
    if config.overwrite:
        raise UsageError("--overwrite requires --out DIR, the folder whose run is replaced")
    out = from_root(comm, _make_folder, source)
    try:
        yield replace(config, out=out)
    finally:  # by any rank: an error on one ends the others
        for folder in (Path(out), HOME):
            with suppress(OSError):  # it has files
                folder.rmdir()


def _make_folder(source: str) -> str:
    """Make and return runs/GRAPH-1, or the first number after it that is free."""
    name = _name_of(source)
    try:
        HOME.mkdir(exist_ok=True)
        for number in itertools.count(1):
            with suppress(FileExistsError):
                folder = HOME / f"{name}-{number}"
                folder.mkdir()
                return str(folder)
    except OSError as problem:
        raise ResourceError(
            f"{HOME.absolute()}: cannot be written: {problem.strerror}; choose a folder with --out DIR, "
            "or keep nothing with --out none"
        ) from None


def _name_of(source: str) -> str:
    """Return GRAPH as a name of a folder: wordnet, rmat, ind.cora."""
    name = source.partition(":")[0] if is_built_in(source) else graph_name(Path(os.path.abspath(source)))
    return re.sub(r"[^\w.+-]+", "_", name).lstrip(".-")[:LONGEST] or "graph"
