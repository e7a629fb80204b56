"""The folder of a run: its files, and the options of a run that is continued, of which some may change."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..atomic import read_regular
from ..errors import CheckpointError, UsageError
from .commands import MeasureConfig, PlanConfig, TrainConfig
from .fields import build, read_toml, toml_values
from .names import LONG_EDGES

CHECKPOINT = re.compile("epoch-[0-9]{6,}")  # name of the folder of one
# In the order in which they are written. env.json is the first to come and the last to go: it marks the folder of a run.
EMBEDDING = "embedding"  # --features: a learned row for each node
RUN_FILES = ("env.json", "config.toml", "metrics.jsonl", "details.json", "split.npy", "summary.json", "predictions.npy")
NAMED_FILE = "predictions.csv"  # where nodes or classes have names
RELATIONS_FILE = "relations.csv"  # of links with relations
PARTS_FILE = "parts.jsonl"  # of runs with a personal phase
# Where inputs are read, how long and how often, on which ranks, and what changes results by rounding alone.
MAY_CHANGE = frozenset(
    "format features labels epochs patience eval_every threads scheme replication method partition device "
    "schedule prune cuda_graph wire wire_gradients trace watchdog checkpoint_every "
    "memory evaluation".split()
)
OF_THE_CALL = ("out", "overwrite", "resume")


def split_file(which: str) -> str:
    """Return the file that --split names, s.npy, ./split or nodes.csv:fold; "" for auto, given, random and numbers."""
    return which if "." in which or "/" in which else ""


def input_files(config: TrainConfig | MeasureConfig | PlanConfig) -> dict[str, str]:
    """Return the files beside GRAPH that options name: option -> path, or ""."""
    is_learned, split = config.features == EMBEDDING, "" if config.on == "links" else split_file(config.split)
    return {"features": "" if is_learned else config.features, "labels": config.labels, "split": split}


def link_shares(split: str) -> tuple[float, ...] | None:
    """Return the shares VAL,TEST or VAL,TEST,SUPERVISION that --split has for links; None: of a split that was read, or 0.1.

    Raises: UsageError for other texts.
    """
    if split in ("auto", "given"):
        return None
    try:
        shares = (0.1, 0.1) if split == "random" else tuple(map(float, split.split(",")))
    except ValueError:
        shares = ()
    if len(shares) not in (2, 3) or not all(0 <= share < 1 for share in shares) or sum(shares[:2]) >= 1:
        raise UsageError(
            f"--split {split}: expected auto, given, random, or shares of val, test and supervision, such as 0.1,0.1, "
            "each from 0 to below 1, val and test below 1 in all: --task links splits pairs of nodes; a column of a table: --edge-split of `spgnn convert`"
        )
    return shares


def is_of_run(folder: Path, path: Path) -> bool:
    """Return whether a path is the folder of a run, or a file or folder that a training writes into it."""
    folder, path = folder.resolve(), path.resolve()
    files = [folder / name for name in (*RUN_FILES, PARTS_FILE, NAMED_FILE, RELATIONS_FILE)]
    return path in (folder, *files) or (folder / "checkpoints").resolve() in (path, *path.parents)


def continued(graph: str, given: Mapping[str, Any]) -> tuple[str, TrainConfig]:
    """Return GRAPH and the options of a training that continues a run.

    Args:   graph  GRAPH, "" for the run's.
            given  the options that were given, `resume` too: a RUN, or auto; they are in MAY_CHANGE, or as the run had them.
    Raises: UsageError naming every option that may not change; CheckpointError where RUN has no checkpoint.
    """
    resume, out = given["resume"], given.get("out", "")
    if given.get("overwrite"):
        raise UsageError(f"--overwrite replaces the run that --resume {resume} continues; omit one of them")
    if resume == "auto":
        if not out:
            raise UsageError("--resume auto requires --out, the folder whose run is continued")
        if not has_checkpoint(Path(out)):
            return graph, build(TrainConfig, {**given, "resume": ""}, "command line")
    folder = Path(out if resume == "auto" else resume)
    if out and Path(out).resolve() != folder.resolve():
        raise UsageError(f"--out {out}: --resume {resume} writes into the run that it continues; omit --out")
    own = read_toml(TrainConfig, folder / "config.toml")
    for path in (folder / name for name in RUN_FILES):
        if path.exists() and not path.is_file():
            raise CheckpointError(f"--resume {resume}: {path} is no regular file, as a run writes it")
    if not has_checkpoint(folder):
        raise CheckpointError(f"--resume {resume}: has no checkpoint; train again with --out {folder}")
    new = build(TrainConfig, given, "command line")
    before = {name: value for name, value in fixed_options(own).items() if name in given}
    check_unchanged(before, new, f"--resume {resume}")
    changed = {name: getattr(new, name) for name in given if name in MAY_CHANGE}
    source = graph or toml_values(folder / "config.toml").get("graph", "")
    if not isinstance(source, str) or not source:
        raise CheckpointError(f"{folder / 'config.toml'}: graph = {source!r}; expected a name or path")
    return source, replace(own, **changed, out=str(folder), resume=str(folder), overwrite=False)


def ended_summary(source: str, config: TrainConfig) -> dict[str, Any] | None:
    """Return the summary of the run that config continues, where it has ended and has these options; else None."""
    folder = Path(config.resume)
    checkpoints = folder / "checkpoints"
    left = [path for home in (folder, checkpoints) for path in (*home.glob(".new-*"), *home.glob(".old-*"))]
    names = [path.name for path in checkpoints.glob("epoch-*") if CHECKPOINT.fullmatch(path.name)]
    if left or not names or not all((folder / name).is_file() for name in RUN_FILES):
        return None
    own = read_toml(TrainConfig, folder / "config.toml")
    graph = toml_values(folder / "config.toml").get("graph")
    if graph != source or replace(own, **{name: getattr(config, name) for name in OF_THE_CALL}) != config:
        return None
    newest = max(names, key=lambda name: int(name[6:]))
    try:
        manifest, summary = map(_read_json, (checkpoints / newest / "manifest.json", folder / "summary.json"))
        check_unchanged(manifest["options"], config, str(checkpoints / newest))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # damaged: the run is continued, or refused
        return None
    return {name: value for name, value in summary.items() if name not in ("per_class", "classes", "names")}


def _read_json(path: Path) -> Any:
    return json.loads(read_regular(path)) if path.is_file() else None


def fixed_options(config: TrainConfig) -> dict[str, Any]:
    """Return the options that a continued training may not change."""
    names = TrainConfig.__dataclass_fields__
    return {name: getattr(config, name) for name in names if name not in MAY_CHANGE and name not in OF_THE_CALL}


def check_unchanged(before: Mapping[str, Any], config: TrainConfig, what: str) -> None:
    """Raise UsageError naming each option of `before` that has another value in config."""
    known = TrainConfig.__dataclass_fields__
    names = [name for name in before if name in known and _long(before[name]) != _long(getattr(config, name))]
    if names:
        flags = {name: "--" + name.replace("_", "-") for name in names}
        changes = ", ".join(f"{flags[name]} {getattr(config, name)} (was {before[name]})" for name in names)
        raise UsageError(f"{what}: a run cannot be continued with {changes}; omit it, or train into a new --out")


def _long(value: Any) -> Any:
    """Return the longer name of a direction of edges, which has two; another value as it is."""
    return LONG_EDGES.get(value, value) if isinstance(value, str) else value


def has_checkpoint(folder: Path) -> bool:
    """Whether a run has something to continue from."""
    names = (path.name for path in (folder / "checkpoints").glob("epoch-*"))
    return (folder / "config.toml").exists() and any(map(CHECKPOINT.fullmatch, names))
