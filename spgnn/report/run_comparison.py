"""Runs side by side: the options in which they differ, curves, scores, seconds and bytes, as a table and an HTML page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import UsageError
from . import style
from .page import Page
from .run_report import Run, read_run

OF_THE_CALL = ("out", "overwrite", "resume", "log_view", "trace", "watchdog", "checkpoint_every")
LINES = ("-", "--", "-.", ":")
COLUMNS = {
    "run": "run",
    "ranks": "ranks",
    "epochs": "epochs",
    "best_epoch": "best epoch",
    "train": "train %",
    "val": "validation %",
    "test": "test %",
    "loss": "last loss",
    "epoch_ms": "ms per epoch",
    "seconds": "seconds of epochs",
    "sent_mb": "MB sent per epoch",
    "peak_rss_mb": "peak MB of a rank",
}


def read_runs(folders: Sequence[str | Path]) -> dict[str, Run]:
    """Return the runs of folders by name: the last parts of their paths that tell them apart.

    Raises: UsageError for a folder that is given twice, CheckpointError for a file that is invalid.
    """
    paths = [Path(os.path.abspath(folder)) for folder in folders]
    for path in paths:
        if paths.count(path) > 1:
            raise UsageError(f"{path} is given twice; compare different runs")
    return {_name(path, paths): read_run(path) for path in paths}


def table(runs: dict[str, Run]) -> tuple[list[dict], dict[str, str]]:
    """Return a row per run with its results, and the headings of the columns that have values."""
    rows = [_row(name, run) for name, run in runs.items()]
    return rows, {key: text for key, text in COLUMNS.items() if any(row[key] is not None for row in rows)}


def differing_options(runs: dict[str, Run]) -> dict[str, dict[str, object]]:
    """Return option -> {run: value} of the options that are not the same in all runs, with graph, the input."""
    names = list(dict.fromkeys(name for run in runs.values() for name in run.config if name not in OF_THE_CALL))
    values = {name: {run: of.config.get(name) for run, of in runs.items()} for name in names}
    return {name: of for name, of in values.items() if len({repr(value) for value in of.values()}) > 1}


def comparison_page(runs: dict[str, Run]) -> Page:
    """Return the page of runs side by side."""
    rows, columns = table(runs)
    top = max((row["val"] for row in rows if row["val"] is not None), default=None)
    best = [row for row in rows if row["val"] == top and row["test"] is not None]
    lead = f"best on validation nodes: {best[0]['run']}, test {best[0]['test']:.2f} %" if len(best) == 1 else ""
    page = Page(f"{len(runs)} runs", lead)
    page.section(
        "Results",
        "Scores are those of the best epoch on validation nodes. Seconds depend on the machine and its load; bytes do not.",
    )
    page.table(rows, columns)
    different = differing_options(runs)
    page.section(
        "Options that differ",
        "All other options are the same in all runs." if different else "All options are the same in all runs.",
    )
    if different:
        of_runs = [{"run": name} | {option: _shown(of[name]) for option, of in different.items()} for name in runs]
        page.table(of_runs, {"run": "run"} | {option: option for option in different})
    page.section(
        "Learning",
        "Left: loss of the training nodes, on a logarithmic axis. Right: score of the validation nodes; a dot is the best epoch.",
    )
    page.picture(draw_learning(runs), "Loss and validation score of each epoch, a line per run.")
    page.section("Cost", "Left: median of the seconds of an epoch. Right: bytes that all ranks send in an epoch.")
    page.picture(draw_cost(runs), "Seconds and bytes of an epoch, a bar per run.")
    return page


def draw_learning(runs: dict[str, Run]):
    """Draw the loss and the validation score of each epoch, a line per run."""
    figure, (left, right) = style.panels(2, 2, 5.0, 3.6)
    styles, handles = _styles(runs), []
    for name, run in runs.items():
        colour, line = styles[name]
        epochs, few = _column(run, "epoch"), "o" if len(run.records) == 1 else ""
        (handle,) = left.plot(
            epochs, _column(run, "loss"), color=colour, linestyle=line, linewidth=1.4, marker=few, label=name
        )
        handles.append(handle)
        values = _column(run, "val")
        known = np.isfinite(values)
        right.plot(epochs[known], values[known], color=colour, linestyle=line, linewidth=1.4, marker=few)
        best = run.summary.get("best_epoch")
        if best is not None and best in epochs[known]:
            right.plot([best], values[epochs == best], color=colour, marker="o", markersize=5, linestyle="none")
    left.set_yscale("log")
    style.finish(left, "epoch", "training loss", "loss")
    style.finish(right, "epoch", _metric(runs), "validation score")
    style.plain_log(left, "y")
    for axis in (left, right):
        style.thousands(axis, "x", is_whole=True)
    figure.legend(handles=handles, loc="outside lower center", ncols=min(3, len(runs)), fontsize=8.5, frameon=False)
    style.headline(figure, "Learning")
    return figure


def draw_cost(runs: dict[str, Run]):
    """Draw the seconds and the bytes of an epoch, a bar per run."""
    figure, (left, right) = style.panels(2, 2, 5.0, 1.2 + 0.34 * len(runs))
    rows, styles = table(runs)[0], _styles(runs)
    places = np.arange(len(rows))[::-1]
    factor, unit = style.byte_unit(max(row["sent_mb"] for row in rows))
    for axis, values, what in (
        (left, [row["epoch_ms"] for row in rows], "milliseconds per epoch"),
        (right, [factor * row["sent_mb"] for row in rows], f"{unit} sent per epoch"),
    ):
        axis.barh(places, values, color=[styles[row["run"]][0] for row in rows], height=0.62)
        for place, value in zip(places, values):
            axis.annotate(
                style.number(value), (value, place), (3, 0), textcoords="offset points", va="center", fontsize=8
            )
        style.finish(axis, what)
        style.thousands(axis, "x")
        axis.set_xlim(0, 1.18 * max(values) or 1)
        axis.grid(axis="y", visible=False)
    left.set_yticks(places, [style.wrap(row["run"], 1.6, 8) for row in rows])
    right.set_yticks(places, [""] * len(rows))
    style.headline(figure, "Cost of an epoch")
    return figure


def _name(path: Path, paths: Sequence[Path]) -> str:
    """Return the last parts of a path that no other of the paths ends with."""
    depth = 1
    while sum(other.parts[-depth:] == path.parts[-depth:] for other in paths) > 1:
        depth += 1
    return "/".join(path.parts[-depth:]).lstrip("/")


def _row(name: str, run: Run) -> dict:
    """Return the results of a run; those of a training that has not ended are of its epochs so far."""
    summary, seconds = run.summary, _column(run, "epoch_s")
    scored = [record for record in run.records if record.get("train") is not None]
    best = summary or max(scored, key=lambda r: -1 if r.get("val") is None else r["val"], default={})
    percent = {key: None if best.get(key) is None else 100 * best[key] for key in ("train", "val", "test")}
    return {
        "run": name if summary else f"{name} (not ended)",
        "ranks": summary.get("ranks", run.environment.get("ranks")),
        "epochs": len(run.records),
        "best_epoch": best.get("best_epoch", best.get("epoch")),
        **percent,
        "loss": run.records[-1]["loss"],
        "epoch_ms": 1e3 * float(np.median(seconds[1:] if len(seconds) > 1 else seconds)),
        "seconds": float(seconds.sum()),
        "sent_mb": float(np.median(_column(run, "bytes_sent"))) / 1e6,
        "peak_rss_mb": summary.get("peak_rss_mb"),
    }


def _styles(runs: dict[str, Run]) -> dict[str, tuple[str, str]]:
    """Return a colour and a line for each run."""
    colours = list(dict.fromkeys(colour for colour, _, _ in (*style.METHODS.values(), *style.OTHERS)))[2:]
    names = [row["run"] for row in table(runs)[0]]
    found = [(colours[i % len(colours)], LINES[i % len(LINES)]) for i in range(len(runs))]
    return dict(zip(names, found)) | dict(zip(runs, found))


def _metric(runs: dict[str, Run]) -> str:
    return " or ".join(dict.fromkeys(run.summary["metric"] for run in runs.values() if run.summary)) or "score"


def _shown(value) -> str:
    return "on" if value is True else "off" if value is False else "default" if value is None else str(value) or "none"


def _column(run: Run, name: str) -> np.ndarray:
    return np.array([np.nan if record.get(name) is None else record[name] for record in run.records], float)
