"""The page of a run and of several side by side: results, options, layers, curves, bytes between ranks, classes.

Shapes: P ranks, q sends, p receives; C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from ..config import TrainConfig
from .page import Page
from .runs import OF_THE_CALL, Run, filled, options_table, results_table, shown

LAYER = "layer f_in f_out product rows multiply_adds rows_sent bytes_forward bytes_backward why"
CLASS = "class precision recall f1 support most_often_taken_for r2 mae rmse relative_l2"
MOST_SHADED = 128  # ranks or classes of a shaded table
LEARNING = (
    "Loss should fall and flatten. If validation and test scores fall while the training score rises, the model "
    "overfits. A dot is the epoch whose weights were stored."
)
COST = "The first epoch may include set-up, and spikes are other load on the machine."
SENT = " The communicator counts the bytes sent; dashed: bytes predicted before the run."


def runs_page(runs: dict[str, Run], figures: Mapping[str, bytes]) -> Page:
    """Return the page of one run, or of several side by side. Args: figures  of `draw`."""
    page = _results_page(runs) if len(runs) > 1 else _result_page(*runs.values())
    page.section("Learning", LEARNING)
    page.figure(figures["learning.svg"], "Loss and scores of each epoch")
    page.section("Cost per epoch", COST + SENT * any(run.sends for run in runs.values()))
    page.figure(figures["cost.svg"], "Seconds and bytes of each epoch")
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
        test = "none" if summary["test"] is None else f"{summary['test']:.4f}"
        lead = f"{run.config.get('model', 'model')}, {len(run.records):,} epochs on {ranks}; test {run.metric} {test}"
    page = Page(f"Training on {run.graph}", lead)
    page.section("Result", "From summary.json. Scores: of the best epoch. Bytes: of all ranks, per epoch.")
    plain = {name: value for name, value in summary.items() if not isinstance(value, (dict, list))}
    page.properties(plain)
    page.section("Options", "Those that are not the defaults. Repeat: spgnn train --config config.toml --out DIR")
    usual = {f.name: f.default for f in fields(TrainConfig)} | {name: run.config.get(name) for name in OF_THE_CALL}
    chosen = {name: value for name, value in run.config.items() if name not in usual or value != usual[name]}
    page.properties({name: shown(value) for name, value in chosen.items()})
    explanation = run.details.get("explanation", {})
    if explanation.get("layers"):
        why = [f"{name.title()}: {explanation.get(name)}." for name in ("scheme", "rows")]
        page.section("Layers", "What a training epoch computes and sends in each layer, all ranks, and why.", *why)
        page.table(*filled(explanation["layers"], _headings(LAYER)))
    return page


def _add_traffic(page: Page, run: Run) -> None:
    """Add the bytes of each pair of ranks, if any were sent."""
    sent_PP = np.array(run.details.get("sent_PP", []), float)
    if sent_PP.any() and len(sent_PP) <= MOST_SHADED:
        page.section("Bytes between ranks", "kB that rank q (row) sent rank p (column) in the last epoch.")
        page.shaded(sent_PP / 1e3, [str(rank) for rank in range(len(sent_PP))], sent_PP.max() / 1e3, "{:,.4g}".format)


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
            row["most_often_taken_for"] = f"{names[wrong.argmax()]} ({wrong.max():,.0f})" if wrong.any() else None
    many, one = ("Columns", "column") if "r2" in rows[0] else ("Classes", "class")
    page.section(many, f"Scores of the test nodes of each {one} at the best epoch; support is their number.")
    page.table(*filled(rows, _headings(CLASS)))
    if len(confusion_CC) == len(names) <= MOST_SHADED and confusion_CC.any():
        page.section("Confusion", "Test nodes of a class (row) by predicted class (column), shaded by share of a row.")
        page.shaded(confusion_CC, names, confusion_CC.sum(1, keepdims=True), "{:,.0f}".format)


def _results_page(runs: dict[str, Run]) -> Page:
    page = Page(f"{len(runs)} runs")
    page.section(
        "Results",
        "Scores are from the best epoch on validation nodes; ms/epoch and MB/epoch are medians, MB of all ranks. "
        "Seconds depend on the machine and its load; bytes do not.",
    )
    page.table(*results_table(runs))
    rows, columns = options_table(runs)
    is_any = len(columns) > 1
    page.section("Options that differ", f"All {'other ' * is_any}options are the same in all runs.")
    if is_any:
        page.table(rows, columns | {"run": "run"})
    return page


def _headings(keys: str) -> dict[str, str]:
    """Return key -> heading of keys that are separated by spaces."""
    return {key: key.replace("_", " ") for key in keys.split()}
