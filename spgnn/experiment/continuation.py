"""resume: a run goes on from the newest whole checkpoint of its folder, on any ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..config import continued
from ..errors import together
from .train import run


def resume(
    folder: str | Path,
    comm,
    report: Callable[[dict], Any] | None = None,
    show: Callable[[str], None] | None = None,
    graph: str = "",
    **options,
) -> dict:
    """Continue the run that `spgnn train --out` left in a folder, and return its summary.

    Args:   graph, options  that differ from those of the run: epochs, scheme, partition, ... see config.continued.
            report, show    as those of experiment.run.
    Raises: UsageError naming options that a run cannot be continued with; CheckpointError without a whole checkpoint.
    Collective, on any number of ranks, which all see the folder.
    """
    source, config = together(comm, continued, graph, {**options, "resume": str(folder)})
    return run(source, config, comm, report, show)
