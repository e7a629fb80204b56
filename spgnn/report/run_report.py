"""The page of a training and of several side by side, from their --out folders: options, curves, cost, traffic, classes.

Shapes: P ranks, q sends, p receives; C classes.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_args

import numpy as np

from ..config import TrainConfig
from ..config.names import LOWER, NumberMetric
from ..errors import InputError, UsageError
from . import style
from .json_files import SQUARE, parsed, read_lines, read_object, read_text
from .page import Page, filled
from .style import Picture

# Required and optional keys of an epoch and of the summary.
SCORE = "a number or null"
SCORES = {"train": "#0072B2", "val": "#E69F00", "test": "#009E73"}
EPOCH = {"epoch": "a whole number", "loss": SCORE, "epoch_s": "a number", "bytes_sent": "a number"}
SUMMARY = {"ranks": "a whole number above 0", "metric": "a name", "test": SCORE, "bytes_predicted": SCORE}
SUMMARY |= dict.fromkeys(("bytes_sent", "epoch_s", "peak_rss_mb"), "a number")
SUMMARY_TOO = {"train": SCORE, "val": SCORE, "best_epoch": "a whole number or null"}
SUMMARY_TOO |= {"per_class": "a list of classes", "classes": "a list of names"}
DETAILS = {"explanation": "an explanation", "sent_PP": SQUARE, "confusion_CC": SQUARE}
CLASSES = {
    "class": "class", "precision": "precision", "recall": "recall", "f1": "F1", "support": "nodes",
    "taken_for": "most often taken for", "r2": "R2", "mae": "MAE", "rmse": "RMSE", "relative_l2": "relative L2",
}  # fmt: skip
LAYERS = {
    "layer": "layer", "widths": "features", "product": "product", "rows": "rows", "multiply_adds": "multiply-adds",
    "rows_sent": "rows sent", "bytes": "bytes sent", "why": "because",
}  # fmt: skip
MOST_CLASSES = 64  # of a confusion table
OF_THE_CALL = ("out", "overwrite", "resume", "trace", "watchdog", "checkpoint_every")
COLUMNS = {
    "run": "run", "ranks": "ranks", "epochs": "epochs", "best_epoch": "best", "train": "train %", "val": "val %",
    "test": "test %", "loss": "loss", "epoch_ms": "ms/epoch", "seconds": "seconds", "sent_mb": "MB/epoch",
    "peak_rss_mb": "peak MB",
}  # fmt: skip
PROPERTIES = {
    "graph": "graph", "n": "nodes", "nnz": "nonzeros", "model": "model", "epochs": "epochs", "best_epoch": "best epoch",
    "train": "train", "val": "validation", "test": "test", "metric": "metric", "ranks": "ranks",
    "scheme": "exchange scheme", "replication": "replication c", "method": "partitioner", "seed": "seed",
}  # fmt: skip
SUBGRAPHS = {"sampler": "sampler", "subgraphs": "subgraphs per update", "steps_per_epoch": "updates per epoch"}
STEPS = {"sample_s": "CPU seconds of draws per epoch", "sample_wait_s": "seconds waited for draws per epoch"}
LEARNING = (
    "Loss should fall and flatten. If validation and test scores fall while the training score rises, the model "
    "overfits. A dot is the epoch whose weights were stored."
)
COST = "Seconds of each epoch; the first may include set-up, and spikes are other load on the machine."
SENT = " The communicator counts the bytes sent; dashed: bytes predicted before the run."


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
    def classes(self) -> list[str]:
        """The names of the classes, or their numbers."""
        n_classes = len(self.summary.get("per_class", ()))
        names = self.summary.get("classes") or []
        return names if len(names) == n_classes else [str(number) for number in range(n_classes)]

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
    folder = Path(folder)
    if not (folder / "config.toml").exists():
        raise InputError(f"{folder} has no config.toml; expected the --out folder of `spgnn train`")
    config = parsed(read_text(folder / "config.toml"), str(folder / "config.toml"), {}, {}, "options", tomllib.loads)
    known = {"env": ({}, {}), "summary": (SUMMARY, SUMMARY_TOO), "details": ({}, DETAILS)}
    environment, summary, details = (read_object(folder / f"{name}.json", *of) for name, of in known.items())
    of_epoch = "the record of an epoch that has ended"
    records = read_lines(folder / "metrics.jsonl", EPOCH, dict.fromkeys(SCORES, SCORE), of_epoch)
    return Run(folder, config, environment, records, summary, details)


def read_runs(folders: Sequence[str | Path]) -> dict[str, Run]:
    """Return the runs of folders by name: the last parts of their paths that tell them apart.

    Raises: UsageError for a folder that is given twice, InputError for a file that is invalid.
    """
    paths = [Path(os.path.abspath(folder)) for folder in folders]
    for path in paths:
        if paths.count(path) > 1:
            raise UsageError(f"{path} is given twice; expected different runs")
    return {_name(path, paths): read_run(path) for path in paths}


def table(runs: dict[str, Run]) -> tuple[list[dict], dict[str, str]]:
    """Return a row per run with its results, and the headings of the columns that have values.

    Scores are in percent, unless runs are scored by how far numbers are from theirs.
    """
    rows, columns = [_row(name, run) for name, run in runs.items()], dict(COLUMNS)
    if are_shares(runs):
        for row in rows:
            row |= {key: None if row[key] is None else 100 * row[key] for key in SCORES}
    else:
        columns |= {key: key for key in SCORES}
    return filled(rows, columns)


def are_shares(runs: dict[str, Run]) -> bool:
    """Return whether the scores of all runs are shares of 1."""
    return not {run.metric for run in runs.values()} & set(get_args(NumberMetric))


def best_row(rows: Sequence[dict], runs: dict[str, Run]) -> dict | None:
    """Return the one row with the best validation score; None where there is none, or several, or they cannot be compared."""
    metrics = {run.metric for run in runs.values()}
    scored = [row for row in rows if row["val"] is not None]
    if not scored or (len(metrics) > 1 and not are_shares(runs)):
        return None
    top = (min if metrics & set(LOWER) else max)(row["val"] for row in scored)
    best = [row for row in scored if row["val"] == top]
    return best[0] if len(best) == 1 else None


def differing_options(runs: dict[str, Run]) -> dict[str, dict[str, object]]:
    """Return option -> {run: value} of the options that are not the same in all runs, with graph, the input."""
    names = list(dict.fromkeys(name for run in runs.values() for name in run.config if name not in OF_THE_CALL))
    default = {f.name: f.default for f in fields(TrainConfig)}  # of what a run of save_run leaves out
    values = {name: {run: of.config.get(name, default.get(name)) for run, of in runs.items()} for name in names}
    return {name: of for name, of in values.items() if len({repr(value) for value in of.values()}) > 1}


def options_table(runs: dict[str, Run]) -> tuple[list[dict], dict[str, str]]:
    """Return a row per run with the options that differ, as text, and their headings."""
    different = differing_options(runs)
    rows = [{"run": name} | {option: _shown(of[name]) for option, of in different.items()} for name in runs]
    return rows, {"run": "options that differ"} | {option: option for option in different}


def pictures(runs: dict[str, Run]) -> dict[str, Picture]:
    """Return the pictures by name."""
    of, reading = _graphs(runs.values()), COST + SENT * any(run.sends for run in runs.values())
    return {
        "learning": Picture(lambda across: draw_learning(runs, across), f"Learning: {of}", "Learning", LEARNING),
        "cost": Picture(lambda across: draw_cost(runs, across), f"Cost per epoch: {of}", "Cost per epoch", reading),
    }


def runs_page(runs: dict[str, Run]) -> Page:
    """Return the page of one run, or of several side by side."""
    page = _results_page(runs) if len(runs) > 1 else _result_page(*runs.values())
    for picture in pictures(runs).values():
        page.picture(picture)
    if len(runs) == 1:
        (run,) = runs.values()
        _add_traffic(page, run)
        _add_classes(page, run)
        page.section("Environment")
        page.properties(run.environment)
    return page


def _result_page(run: Run) -> Page:
    summary, lead = run.summary, f"{len(run.records):,} epochs; the training has not ended"
    if summary:
        ranks = f"{summary['ranks']} rank{'s' if summary['ranks'] > 1 else ''}"
        lead = f"{run.config.get('model', 'model')}, {len(run.records):,} epochs on {ranks}; "
        lead += f"test {summary['metric']} {_score(summary['test'])}"
    page = Page(f"Training on {_graphs([run])}", lead)
    page.section("Result")
    page.properties(properties(run))
    page.section("Options", "Those that are not the defaults. Repeat: spgnn train --config config.toml --out DIR")
    usual = {f.name: f.default for f in fields(TrainConfig)}
    chosen = {name: value for name, value in run.config.items() if name not in usual or value != usual[name]}
    page.properties({name: _shown(value) for name, value in chosen.items() if name not in OF_THE_CALL})
    page.folded("config.toml", read_text(run.folder / "config.toml"))
    explanation = run.details.get("explanation", {})
    if explanation.get("layers"):
        why = [f"{name.title()}: {explanation.get(name)}." for name in ("scheme", "rows")]
        page.section("Layers", "What a training epoch computes and sends in each layer, all ranks, and why.", *why)
        rows = [layer | {"bytes": layer["bytes_forward"] + layer["bytes_backward"]} for layer in explanation["layers"]]
        for row in rows:
            row["widths"] = None if row.get("f_in") is None else f"{row['f_in']} \u2192 {row.get('f_out')}"
        page.table(*filled(rows, LAYERS))
    return page


def _add_traffic(page: Page, run: Run) -> None:
    """Add the bytes of each pair of ranks, if any were sent."""
    sent_PP = np.array(run.details.get("sent_PP", []), float)
    if not sent_PP.any():
        return
    factor, unit = style.byte_unit(sent_PP.max() / 1e6)
    page.section("Bytes between ranks", f"{unit} that rank q (row) sent rank p (column) in the last epoch.")
    ranks = [str(rank) for rank in range(len(sent_PP))]
    page.heats({"": factor * sent_PP / 1e6}, ranks, sent_PP.max() * factor / 1e6, style.number)


def _add_classes(page: Page, run: Run) -> None:
    """Add the scores of each class and the table of confusions."""
    names, rows = run.classes, run.summary.get("per_class")
    if not rows:
        return
    rows = [row | {"class": name} for row, name in zip(rows, names)]
    confusion_CC = np.array(run.details.get("confusion_CC", []), float)
    if len(confusion_CC) == len(names):
        wrong_CC = confusion_CC * (1 - np.eye(len(names)))
        for row, wrong in zip(rows, wrong_CC):
            row["taken_for"] = f"{names[wrong.argmax()]} ({wrong.max():,.0f})" if wrong.any() else None
    what = "Columns" if "r2" in rows[0] else "Classes"
    page.section(
        what, f"Scores of the test nodes of each {what[: -1 if what == 'Columns' else -2].lower()} at the best epoch."
    )
    page.table(*filled(rows, CLASSES))
    if len(confusion_CC) == len(names) <= MOST_CLASSES and confusion_CC.any():
        page.section("Confusion", "Test nodes of a class (row) by predicted class (column), shaded by share of a row.")
        page.heats({"": confusion_CC}, names, confusion_CC.sum(1, keepdims=True), "{:,.0f}".format)


def _results_page(runs: dict[str, Run]) -> Page:
    rows, columns = table(runs)
    best = best_row(rows, runs)
    shown = (
        ""
        if best is None or best["test"] is None
        else f"{best['test']:.2f} %"
        if are_shares(runs)
        else f"{best['test']:.4g}"
    )
    lead = f"best on validation nodes: {best['run']}, test {shown}" if shown else ""
    page = Page(f"{len(runs)} runs", lead)
    page.section(
        "Results",
        "Scores are from the best epoch on validation nodes; ms/epoch and MB/epoch are medians, MB of all ranks. "
        "Seconds depend on the machine and its load; bytes do not.",
    )
    page.table(rows, columns)
    rows, columns = options_table(runs)
    is_any = len(columns) > 1
    page.section("Options that differ", f"All {'other ' * is_any}options are the same in all runs.")
    if is_any:
        page.table(rows, columns | {"run": "run"})
    return page


def draw_learning(runs: dict[str, Run], across: int = 2):
    """Draw the loss and the scores of each epoch; of several runs the validation score, a line per run."""
    figure, (left, right) = style.panels(2, across)
    for (name, run), (colour, line) in zip(runs.items(), style.lines(len(runs))):
        epochs, best = run.column("epoch"), run.summary.get("best_epoch")
        _plot(left, epochs, run.column("loss"), colour, line, name)
        for key, of_score in SCORES.items() if len(runs) == 1 else [("val", colour)]:
            values = run.column(key)
            known = np.isfinite(values)
            if known.any():
                label = f"{PROPERTIES[key]} {_score(values[known][-1])}"
                _plot(right, epochs[known], values[known], of_score, line, label)
            if key == "val" and best is not None:
                at = known & (epochs == best)
                right.plot(epochs[at], values[at], color=of_score, marker="o", markersize=6, linestyle="none")
    metrics = dict.fromkeys(run.summary["metric"] for run in runs.values() if run.summary)
    left.set(xlabel="epoch", ylabel="training loss", title="loss")
    title = "scores" if len(runs) == 1 else "validation score"
    right.set(xlabel="epoch", ylabel=" or ".join(metrics) or "score", title=title)
    if any((run.column("loss") > 0).any() for run in runs.values()):
        left.set_yscale("log")
        style.label_ticks(left.yaxis)
    if len(runs) == 1 and right.lines:
        right.legend(loc="best", title="at the last epoch", title_fontsize=8)
    return _finished(figure, runs, across)


def draw_cost(runs: dict[str, Run], across: int = 2):
    """Draw seconds of each epoch, and where bytes are sent the bytes and their prediction."""
    sends = any(run.sends for run in runs.values())
    figure, (left, *others) = style.panels(1 + sends, across)
    factor, unit = style.byte_unit(max(float(run.column("bytes_sent").max()) for run in runs.values()) / 1e6)
    tops, highest = [], 0.0
    for (name, run), (colour, line) in zip(runs.items(), style.lines(len(runs))):
        epochs, ms, sent = run.column("epoch"), 1e3 * run.column("epoch_s"), factor * run.column("bytes_sent") / 1e6
        _plot(left, epochs, ms, colour, line, name)
        tops.append(min(1.15 * float(ms.max()), 6 * float(np.median(ms))))
        predicted = run.summary.get("bytes_predicted")
        for right in others:
            _plot(right, epochs, sent, colour, line, name)
            if predicted is not None:
                right.axhline(factor * predicted / 1e6, color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)))
            highest = max(highest, factor * (predicted or 0) / 1e6, float(sent.max()))
            right.set(xlabel="epoch", ylabel=f"{unit}, all ranks", title="sent per epoch", ylim=(0, 1.3 * highest or 1))
    of_one = f"; median {style.number(float(np.median(ms)))} ms" if len(runs) == 1 else ""
    left.set(xlabel="epoch", ylabel="milliseconds", title=f"time per epoch{of_one}", ylim=(0, max(tops) or 1))
    for axis in (left, *others):
        style.label_ticks(axis.yaxis)
    return _finished(figure, runs, across)


def properties(run: Run) -> dict:
    """Return the result of a run: name -> value."""
    summary = run.summary
    found = {text: summary[name] for name, text in PROPERTIES.items() if name in summary}
    found |= {text: _score(found[text]) for text in ("train", "validation", "test") if text in found}
    if summary:
        sent, predicted = summary["bytes_sent"], summary["bytes_predicted"]
        found["seconds per epoch"] = f"{summary['epoch_s']:.4f}"
        said = ", as predicted" if sent == predicted else "" if predicted is None else f"; predicted: {predicted:,}"
        found["bytes sent per epoch"] = f"{sent:,}{said}"
        found["peak memory"] = f"{summary['peak_rss_mb']:,.0f} MB, largest rank"
    if summary.get("sampler", "none") != "none":
        found |= {text: summary[name] for name, text in SUBGRAPHS.items() if name in summary}
        means = {text: run.column(name) for name, text in STEPS.items()}
        found |= {text: f"{np.nanmean(of):.4f}" for text, of in means.items() if np.isfinite(of).any()}
    return found


def _finished(figure, runs: dict[str, Run], across: int):
    for axis in figure.axes:
        style.label_ticks(axis.xaxis, is_whole=True)
    if len(runs) > 1:
        style.legend(figure, figure.axes[0].lines, list(runs), across)
    return figure


def _plot(axis, epochs: np.ndarray, values: np.ndarray, colour: str, line: str, label: str) -> None:
    few = "o" if len(epochs) <= 20 else ""
    axis.plot(epochs, values, color=colour, linestyle=line, linewidth=1.4, marker=few, markersize=3.5, label=label)


def _name(path: Path, paths: Sequence[Path]) -> str:
    """Return the last parts of a path that no other of the paths ends with."""
    depth = 1
    while sum(other.parts[-depth:] == path.parts[-depth:] for other in paths) > 1:
        depth += 1
    return "/".join(path.parts[-depth:]).lstrip("/")


def _row(name: str, run: Run) -> dict:
    """Return the results of a run; those of a training that has not ended are of its epochs so far."""
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


def _graphs(runs: Iterable[Run]) -> str:
    return ", ".join(dict.fromkeys(Path(str(run.config.get("graph") or run.folder)).name for run in runs))


def _score(value) -> str:
    return "none" if value is None else f"{value:.4f}"


def _shown(value) -> str:
    return "on" if value is True else "off" if value is False else "default" if value is None else str(value) or "none"
