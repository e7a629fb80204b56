"""Runs, read from the --out folders of trainings and checked; the table of several, the options that differ.

Shapes: P ranks, q sends, p receives; C classes.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_args

import numpy as np

from ..atomic import read_regular
from ..config import TrainConfig
from ..config.names import LOWER, NumberMetric
from ..errors import InputError, UsageError, is_integer, is_number

SCORES = ("train", "val", "test")
# Required and optional keys of an epoch and of the summary.
SCORE = "a number or null"
EPOCH = {"epoch": "a whole number", "loss": SCORE, "epoch_s": "a number", "bytes_sent": "a number"}
SUMMARY = {"ranks": "a whole number above 0", "metric": "a name", "test": SCORE, "bytes_predicted": SCORE}
SUMMARY |= dict.fromkeys(("bytes_sent", "epoch_s", "peak_rss_mb"), "a number")
SUMMARY_TOO = {"train": SCORE, "val": SCORE, "best_epoch": "a whole number or null"}
SUMMARY_TOO |= {"per_class": "a list of objects", "classes": "a list of names", "per_relation": "a list of objects"}
SQUARE = "rows of as many whole numbers"
DETAILS = {"explanation": "an explanation", "sent_PP": SQUARE, "confusion_CC": SQUARE}
FILES = {"env": ({}, {}), "summary": (SUMMARY, SUMMARY_TOO), "details": ({}, DETAILS)}
OF_THE_CALL = ("out", "overwrite", "resume", "trace", "watchdog", "checkpoint_every")
COLUMNS = {
    "run": "run", "ranks": "ranks", "epochs": "epochs", "best_epoch": "best", "train": "train %", "val": "val %",
    "test": "test %", "loss": "loss", "epoch_ms": "ms/epoch", "seconds": "seconds", "sent_mb": "MB/epoch",
    "peak_rss_mb": "peak MB",
}  # fmt: skip
Table = tuple[list[dict], dict[str, str]]  # rows, and key -> heading of the columns


def _is_finite(value: object) -> bool:
    return is_number(value) and abs(value) < 1e300


def _is_whole(value: object) -> bool:
    return is_integer(value) and 0 <= value < 1e300


def _are(kind: type, value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, kind) for one in value)


# Kind in the words of a message -> test of a value.
KINDS = {
    "a name": lambda value: isinstance(value, str) and value.isprintable(),
    "a number": _is_finite,
    "a whole number": _is_whole,
    "a whole number above 0": lambda value: _is_whole(value) and value > 0,
    "a list of names": lambda value: _are(str, value),
    "a list of objects": lambda value: _are(dict, value),
    "an explanation": lambda value: isinstance(value, dict) and _are(dict, value.get("layers")),
    SQUARE: lambda value: (
        _are(list, value) and all(len(row) == len(value) and all(map(_is_whole, row)) for row in value)
    ),
}


@dataclass(frozen=True, slots=True)
class Run:
    """The files that `spgnn train --out` wrote; summary and details are empty if the training did not end."""

    folder: Path
    config: dict
    environment: dict
    records: list[dict]
    summary: dict
    details: dict

    @property
    def graph(self) -> str:
        """The name of its graph."""
        return Path(str(self.config.get("graph") or self.folder)).name

    @property
    def classes(self) -> list[str]:
        """The names of the classes, or their numbers."""
        n_classes = len(self.summary.get("per_class", ()))
        names = self.summary.get("classes") or []
        return names[:n_classes] if len(names) >= n_classes else [str(number) for number in range(n_classes)]

    @property
    def metric(self) -> str:
        """What its scores are; of a training that has not ended by its options."""
        default = "r2" if self.config.get("loss", "auto") != "auto" else "accuracy"
        return self.summary.get("metric") or {"auto": default}.get(metric := self.config.get("metric", "auto"), metric)

    @property
    def sends(self) -> bool:
        """Whether bytes were sent, or predicted."""
        return bool(self.summary.get("bytes_predicted")) or any(self.column("bytes_sent"))

    def column(self, name: str) -> np.ndarray:
        """Return the values of a key in each epoch, NaN where there is none."""
        return np.array([np.nan if record.get(name) is None else record[name] for record in self.records], float)


def read_run(folder: str | Path) -> Run:
    """Read the run of a folder. Raises: InputError with the file, and the line, that is invalid."""
    folder, wanted = Path(folder), "expected the --out folder of `spgnn train`"
    if folder.is_file():
        raise InputError(f"{folder}: is a file; {wanted} (pandas.read_json reads the lines of `spgnn measure --json`)")
    if not (path := folder / "config.toml").exists():
        raise InputError(f"{folder}: {'has no config.toml' if folder.is_dir() else 'no such folder'}; {wanted}")
    config = _parsed(_read(path), str(path), {}, {}, "options", tomllib.loads)
    environment, summary, details = (
        _parsed(_read(path), str(path), *kinds, f"the {name} that `spgnn train` writes") if path.exists() else {}
        for name, kinds in FILES.items()
        for path in (folder / f"{name}.json",)
    )
    path = folder / "metrics.jsonl"
    scores, what = dict.fromkeys(SCORES, SCORE), "the record of an epoch that has ended"
    lines = enumerate(_read(path).splitlines(), 1)
    records = [_parsed(line, f"{path}:{number}", EPOCH, scores, what) for number, line in lines]
    if not records:
        raise InputError(f"{path}: is empty; expected {what}")
    return Run(folder, config, environment, records, summary, details)


def read_runs(folders: Sequence[str | Path]) -> dict[str, Run]:
    """Return the runs of folders by name: as many last parts of the path as make it unique.

    Raises: UsageError for a folder that is given twice, InputError for a file that is invalid.
    """
    paths = [Path(os.path.abspath(folder)) for folder in folders]
    for path in paths:
        if paths.count(path) > 1:
            raise UsageError(f"{path} is given twice; expected different runs")
    return {_name(path, paths): read_run(path) for path in paths}


def _read(path: Path) -> str:
    """Return the text of a file. Raises: InputError if it cannot be read."""
    try:
        return read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def _parsed(
    text: str, where: str, needed: Mapping, known: Mapping, what: str, parse: Callable[[str], object] = json.loads
) -> dict:
    """Return the object of a text, checked.

    Args:   needed  required key -> kind of its value; known: the same of optional keys; what: name of the object.
    Raises: InputError if it is not such an object.
    """
    try:
        value = parse(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: contains {type(value).__name__}; expected an object")
    if missing := [name for name in needed if name not in value]:
        raise InputError(f"{where}: lacks {', '.join(missing)}; expected {what}")
    for name, kind in {**needed, **known}.items():
        is_null = kind.endswith(" or null") and value.get(name) is None
        if name in value and not (is_null or KINDS[kind.removesuffix(" or null")](value[name])):
            raise InputError(f"{where}: {name} is {value[name]!r:.60}; expected {kind}")
    return value


def filled(rows: Sequence[Mapping], headings: Mapping[str, str]) -> Table:
    """Return the rows with None for what they lack, and the headings of the columns that have a value."""
    whole = [{**dict.fromkeys(headings), **row} for row in rows]
    return whole, {key: text for key, text in headings.items() if any(row[key] is not None for row in whole)}


def results_table(runs: dict[str, Run]) -> Table:
    """Return a row per run with its results; scores in percent, unless the runs predict numbers."""
    rows, columns = [_row(name, run) for name, run in runs.items()], dict(COLUMNS)
    if not {run.metric for run in runs.values()} & set(get_args(NumberMetric)):  # shares of 1
        for row in rows:
            row |= {key: None if row[key] is None else 100 * row[key] for key in SCORES}
    else:
        columns |= {key: key for key in SCORES}
    return filled(rows, columns)


def differing_options(runs: dict[str, Run]) -> dict[str, dict[str, object]]:
    """Return option -> {run: value} of the options that are not the same in all runs, with graph, the input."""
    names = list(dict.fromkeys(name for run in runs.values() for name in run.config if name not in OF_THE_CALL))
    usual = {f.name: f.default for f in fields(TrainConfig)}  # save_run omits them
    values = {name: {run: of.config.get(name, usual.get(name)) for run, of in runs.items()} for name in names}
    return {name: of for name, of in values.items() if len({repr(value) for value in of.values()}) > 1}


def options_table(runs: dict[str, Run]) -> Table:
    """Return a row per run with the options that differ, as text."""
    different = differing_options(runs)
    rows = [{"run": name} | {option: shown(of[name]) for option, of in different.items()} for name in runs]
    return rows, {"run": "options that differ"} | {option: option for option in different}


def shown(value: object) -> str:
    """Return the value of an option as text."""
    return "on" if value is True else "off" if value is False else "default" if value is None else str(value) or "none"


def _name(path: Path, paths: Sequence[Path]) -> str:
    """Return as many last parts of a path as no other of the paths ends with."""
    depth = 1
    while sum(other.parts[-depth:] == path.parts[-depth:] for other in paths) > 1:
        depth += 1
    return "/".join(path.parts[-depth:]).lstrip("/")


def _row(name: str, run: Run) -> dict:
    """Return the results of a run; of a training that has not ended, those of its epochs so far."""
    summary, seconds = run.summary, run.column("epoch_s")
    scored = [record for record in run.records if record.get("train") is not None]
    sign = -1 if run.metric in LOWER else 1
    best = summary or max(scored, key=lambda r: -np.inf if r.get("val") is None else sign * r["val"], default={})
    return {
        "run": name if summary else f"{name} (not ended)",
        "ranks": summary.get("ranks", run.environment.get("ranks")),
        "epochs": len(run.records),
        "best_epoch": best.get("best_epoch", best.get("epoch")),
        **{key: best.get(key) for key in SCORES},
        "loss": run.records[-1]["loss"],
        "epoch_ms": 1e3 * float(np.median(seconds[1:] if len(seconds) > 1 else seconds)),
        "seconds": float(seconds.sum()),
        "sent_mb": float(np.median(run.column("bytes_sent"))) / 1e6,
        "peak_rss_mb": summary.get("peak_rss_mb"),
    }
