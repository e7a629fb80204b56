"""The HTML report of a training, from its --out folder: learning curves, cost per epoch, options, environment."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..analysis.json_values import fault_of
from ..atomic import read_regular
from ..errors import CheckpointError
from . import style
from .page import Page

SCORES = {"train": "#0072B2", "val": "#E69F00", "test": "#009E73"}
CLASSES = {"f1": "F1", "support": "nodes"}
NAMES = {"val": "validation"}
# Required and optional keys of an epoch and of the summary.
SCORE = "a number or null"
EPOCH = {"epoch": "a whole number", "loss": SCORE, "epoch_s": "a number", "bytes_sent": "a number"}
SUMMARY = {
    "ranks": "a whole number above 0",
    "metric": "a name",
    "test": SCORE,
    "bytes_sent": "a number",
    "bytes_predicted": SCORE,
}
SUBGRAPHS = {
    "sample_s": "CPU seconds of draws per epoch",
    "sample_wait_s": "seconds waited for draws per epoch",
    "gradient_cosine": "cosine with the exact gradient",
    "gradient_norm": "norm over that of the exact gradient",
}
SUMMARY |= dict.fromkeys(("epoch_s", "peak_rss_mb"), "a number")
SUMMARY_TOO = {
    "train": SCORE,
    "val": SCORE,
    "best_epoch": "a whole number or null",
    "per_class": "a list of objects of the same keys",
}
READING = {
    "learning": (
        "Learning",
        "Loss should fall and flatten. If validation and test scores fall while the training score rises, the "
        "model overfits. The dashed line is the epoch whose weights were stored.",
    ),
    "cost": (
        "Cost per epoch",
        "Seconds of each epoch; the first may include set-up, and spikes are other load on the machine. The "
        "communicator counts the bytes sent; if they were predicted before the run, both lines coincide.",
    ),
}


@dataclass(frozen=True, slots=True)
class Run:
    """The files that `spgnn train --out` wrote; summary is empty if the training did not end."""

    folder: Path
    config: dict
    environment: dict
    records: list[dict]
    summary: dict


def read_run(folder: str | Path) -> Run:
    """Read the run of a folder.

    Raises: CheckpointError with the file, and the line, that is invalid.
    """
    folder = Path(folder)
    if not (folder / "config.toml").is_file():
        raise CheckpointError(
            f"{folder} has no config.toml; expected the --out folder of `spgnn train`, or a study of runs/analysis/volumes"
        )
    config = _parsed(folder / "config.toml", tomllib.loads)
    environment, summary = (
        {} if not (folder / name).is_file() else _parsed(folder / name, json.loads)
        for name in ("env.json", "summary.json")
    )
    for name, value in (("env.json", environment), ("summary.json", summary)):
        if not isinstance(value, dict):
            raise CheckpointError(
                f"{folder / name} contains {type(value).__name__}; expected the object that `spgnn train` writes"
            )
    if summary and (fault := fault_of(summary, SUMMARY, SUMMARY_TOO)):
        raise CheckpointError(f"{folder / 'summary.json'}: {fault}; expected the summary that `spgnn train` writes")
    records = []
    for number, line in enumerate(_text(folder / "metrics.jsonl").splitlines(), 1):
        record = _parsed(folder / "metrics.jsonl", json.loads, line, number)
        if fault := fault_of(record, EPOCH, dict.fromkeys(SCORES, SCORE)):
            raise CheckpointError(f"{folder / 'metrics.jsonl'}:{number}: {fault}; expected the record of an epoch")
        records.append(record)
    if not records:
        raise CheckpointError(f"{folder / 'metrics.jsonl'} is empty: no epoch has ended yet")
    return Run(folder, config, environment, records, summary)


def run_pictures(run: Run) -> dict[str, Callable[[], object]]:
    """Return name -> drawing function."""
    return {"learning": lambda: draw_learning(run), "cost": lambda: draw_cost(run)}


def run_page(run: Run) -> Page:
    """Return the report of a run."""
    summary, config = run.summary, run.config
    graph = config.get("graph", summary.get("graph", "a graph"))
    if summary:
        ranks = f"{summary['ranks']} rank{'s' if summary['ranks'] > 1 else ''}"
        score = f"test {summary['metric']} {_score(summary['test'])}"
        lead = f"{config.get('model', 'model')}, {len(run.records):,} epochs on {ranks}; {score}"
    else:
        lead = f"{len(run.records):,} epochs; the training has not ended"
    page = Page(f"Training on {graph}", lead)
    page.section("Result")
    page.properties(_properties(run))
    for name, draw in run_pictures(run).items():
        heading, reading = READING[name]
        page.section(heading, reading)
        page.picture(draw(), f"{heading}. {reading}")
    if summary.get("per_class"):
        page.section("Classes", "Scores per class at the best epoch.")
        page.table(summary["per_class"], {name: CLASSES.get(name, name) for name in summary["per_class"][0]})
    page.section("Options and environment", "Repeat the run with: spgnn train --config config.toml --out DIR")
    page.folded("config.toml", _text(run.folder / "config.toml"))
    page.properties(run.environment)
    return page


def draw_learning(run: Run):
    """Draw the loss and the scores of each epoch."""
    figure, (left, right) = style.panels(2, 2, 5.0, 3.4)
    epochs = _column(run, "epoch")
    left.plot(epochs, _column(run, "loss"), color=style.INK, linewidth=1.5, marker="o" if len(epochs) == 1 else "")
    style.finish(left, "epoch", "training loss", "loss")
    for name, colour in SCORES.items():
        values = _column(run, name)
        known = np.isfinite(values)
        if known.any():
            few = known.sum() <= 20
            label = f"{NAMES.get(name, name)} {_score(values[known][-1])}"
            right.plot(
                epochs[known],
                values[known],
                color=colour,
                linewidth=1.5,
                marker="o" if few else "",
                markersize=4,
                label=label,
            )
    best = run.summary.get("best_epoch")
    if best is not None:
        right.axvline(best, color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)))
    style.finish(
        right,
        "epoch",
        run.summary.get("metric") or "score",
        "scores" + (f"; weights of epoch {best:,}" if best is not None else ""),
    )
    if right.lines:
        right.legend(fontsize=8.5, frameon=False, loc="best", title="at the last epoch", title_fontsize=8)
    for axis in (left, right):
        style.thousands(axis, "x", is_whole=True)
    style.headline(figure, f"Learning: {run.config.get('graph', run.folder.name)}")
    return figure


def draw_cost(run: Run):
    """Draw seconds and bytes of each epoch, and the predicted bytes."""
    figure, (left, right) = style.panels(2, 2, 5.0, 3.4)
    epochs, seconds, sent = (_column(run, name) for name in ("epoch", "epoch_s", "bytes_sent"))
    median = float(np.nanmedian(seconds))
    left.plot(
        epochs,
        1e3 * seconds,
        color=style.METHODS["metis"][0],
        linewidth=1.0,
        marker="o" if len(epochs) <= 20 else "",
        markersize=4,
    )
    left.axhline(1e3 * median, color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)))
    style.finish(left, "epoch", "milliseconds", f"time per epoch; median {style.number(1e3 * median)} ms")
    left.set_ylim(0, min(1.15e3 * float(np.nanmax(seconds)), 6e3 * median) or 1)
    right.plot(
        epochs,
        sent / 1e6,
        color=style.METHODS["volume"][0],
        linewidth=1.8,
        marker="o" if len(epochs) <= 20 else "",
        markersize=4,
        label="sent (counted)",
    )
    predicted = run.summary.get("bytes_predicted")
    if predicted is not None:
        right.axhline(
            predicted / 1e6, color=style.INK, linewidth=1.1, linestyle=(0, (4, 2)), label="predicted before the run"
        )
    style.finish(right, "epoch", "MB, all ranks", f"sent per epoch; last {style.number(sent[-1] / 1e6)} MB")
    right.set_ylim(0, 1.3 * max(float(np.nanmax(sent)) / 1e6, (predicted or 0) / 1e6) or 1)
    right.legend(fontsize=8.5, frameon=False, loc="lower right")
    for axis in (left, right):
        style.thousands(axis, "x", is_whole=True)
        style.thousands(axis, "y")
    style.headline(figure, f"Cost per epoch: {run.config.get('graph', run.folder.name)}")
    return figure


def _properties(run: Run) -> dict:
    summary = run.summary
    names = {
        "graph": "graph", "n": "nodes", "nnz": "nonzeros", "model": "model", "epochs": "epochs", "best_epoch": "best epoch",
        "train": "train", "val": "validation", "test": "test", "metric": "metric", "ranks": "ranks", "scheme": "exchange scheme",
        "replication": "replication c", "method": "partitioner", "seed": "seed",
    }  # fmt: skip
    found = {text: summary[name] for name, text in names.items() if name in summary}
    found |= {text: _score(found[text]) for text in ("train", "validation", "test") if text in found}
    if summary:
        sent, predicted = summary["bytes_sent"], summary["bytes_predicted"]
        found["seconds per epoch"] = f"{summary['epoch_s']:.4f}"
        found["bytes sent per epoch"] = f"{sent:,}" + (
            "" if predicted is None else ", as predicted" if sent == predicted else f"; predicted: {predicted:,}"
        )
        found["peak memory of a rank"] = f"{summary['peak_rss_mb']:,.0f} MB"
    return found | _of_subgraphs(run)


def _of_subgraphs(run: Run) -> dict:
    """Return what a training on subgraphs has recorded, {} for one on all nodes at once."""
    names = {"sampler": "sampler", "subgraphs": "subgraphs per update", "steps_per_epoch": "updates per epoch"}
    if run.summary.get("sampler", "none") == "none":
        return {}
    found = {text: run.summary[name] for name, text in names.items() if name in run.summary}
    for name, text in SUBGRAPHS.items():
        values = _column(run, name)
        if np.isfinite(values).any():
            found[text] = f"{np.nanmean(values):.4f}"
    return found


def _score(value) -> str:
    return "none" if value is None else f"{value:.4f}"


def _column(run: Run, name: str) -> np.ndarray:
    return np.array([np.nan if record.get(name) is None else record[name] for record in run.records], float)


def _text(path: Path) -> str:
    try:
        return read_regular(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from None


def _parsed(path: Path, parse: Callable, text: str | None = None, line: int = 0):
    try:
        return parse(_text(path) if text is None else text)
    except (ValueError, RecursionError) as error:
        where = f"{path}:{line}" if line else str(path)
        raise CheckpointError(f"{where}: cannot be read: {error}") from None
