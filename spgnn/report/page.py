"""The page of a run and of several side by side: results, options, layers, curves, bytes between ranks, classes.

A page is one self-contained HTML file, light or dark as its reader's system is. Figures (SVG) and styles are inside
it, there is no script, and a Content-Security-Policy forbids other sources.

Shapes: P ranks, q sends, p receives; C classes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import get_args

import numpy as np

from ..atomic import write_text
from ..config import TrainConfig
from ..config.names import LinkMetric
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
HTML = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<title>{title}</title><style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1rem 1rem 4rem; max-width: 72rem; }}
h1, p, dd {{ overflow-wrap: anywhere; }}
h2 {{ font-size: 1.25rem; margin: 2rem 0 .4rem; padding-top: .8rem; border-top: 1px solid #8886; }}
.lead, dt {{ opacity: .7; }}
.scroll, figure {{ overflow-x: auto; margin: .6rem 0; }}
table {{ border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .2rem .6rem; text-align: right; vertical-align: bottom; border-bottom: 1px solid #8884; }}
.text {{ text-align: left; max-width: 30rem; overflow-wrap: anywhere; }}
.shaded td {{ background: rgb(0 114 178 / var(--s)); text-align: center; }}
.shaded th, .shaded td {{ padding: .1rem .3rem; font-weight: 400; }}
.shaded th {{ white-space: nowrap; }}
.long thead th {{ writing-mode: vertical-rl; }}
dl {{ columns: 21rem; }}
dl div {{ display: grid; grid-template-columns: 10rem minmax(0, 1fr); gap: .8rem; break-inside: avoid; }}
dd {{ margin: 0; }}
img {{ min-width: 42rem; max-width: 100%; }}
</style></head>
<body><h1>{title}</h1><p class="lead">{lead}</p>
{body}
</body></html>
"""


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
        _add_links(page, run)
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


def _add_links(page: Page, run: Run) -> None:
    """Add the scores of links of val and test, and what may leak between their splits."""
    summary, splits = run.summary, ("val", "test")
    if summary.get("on") != "links":
        return
    rows = [{"split": of, "links": summary.get(f"{of}_links")} | summary["scores"][of] for of in splits]
    ranked = "Each link of val and test is ranked among all nodes, or all items, without other known links."
    page.section("Links", ranked, *map(str, summary.get("notes", ())))
    page.table(*filled(rows, _headings(" ".join(("split", "links", *get_args(LinkMetric))))))


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


class Page:
    """Sections of one HTML page, added from top to bottom; html() returns it, save() writes it."""

    def __init__(self, title: str, lead: str = ""):
        self.title, self.lead = title, lead
        self._body: list[str] = []

    def section(self, heading: str, *paragraphs: str) -> None:
        """Begin a section."""
        self._body += [f"<h2>{escape(heading)}</h2>", *(f"<p>{escape(text)}</p>" for text in paragraphs)]

    def table(self, rows: Sequence[Mapping], columns: Mapping[str, str]) -> None:
        """Add a table. Args: columns  key of the rows -> heading."""
        kind = {key: ' class="text"' if any(isinstance(row[key], str) for row in rows) else "" for key in columns}
        decimals = {key: _decimals([row[key] for row in rows]) for key in columns}
        head = "".join(f"<th{kind[key]}>{escape(text)}</th>" for key, text in columns.items())
        cells = ((f"<td{kind[key]}>{_cell(row[key], decimals[key])}</td>" for key in columns) for row in rows)
        self._table(head, map("".join, cells))

    def shaded(
        self, values_RR: np.ndarray, names: Sequence[str], tops: float | np.ndarray, text: Callable[[float], str]
    ) -> None:
        """Add a square table whose cells are shaded by the root of their share.

        Args: tops  value of the full shade, or one per row (R, 1); text: value -> text of a cell, empty for 0.
        """
        shades_RR = 0.6 * np.sqrt(values_RR / np.maximum(tops, 1e-300))
        titles = [f"<th>{escape(name if len(name) <= 30 else name[:27] + '...')}</th>" for name in names]
        rows = []
        for title, values, shades in zip(titles, values_RR.tolist(), shades_RR):
            cells = (escape(text(value)) if value else "" for value in values)
            rows.append(title + "".join(f'<td style="--s:{s:.2f}">{cell}</td>' for s, cell in zip(shades, cells)))
        head = "<td></td>" + "".join(titles)
        self._table(head, rows, ' class="shaded long"' if max(map(len, names)) > 4 else ' class="shaded"')

    def properties(self, values: Mapping[str, object]) -> None:
        """Add names and values, one per line."""
        pairs = (f"<div><dt>{escape(name)}</dt><dd>{_cell(value)}</dd></div>" for name, value in values.items())
        self._body.append(f"<dl>{''.join(pairs)}</dl>")

    def figure(self, svg: bytes, alt: str) -> None:
        """Add a figure, with a text for who cannot see it."""
        data = base64.b64encode(svg).decode()
        self._body.append(f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{escape(alt)}"></figure>')

    def html(self) -> str:
        """Return the page."""
        text = HTML.format(title=escape(self.title), lead=escape(self.lead), body="\n".join(self._body))
        return text.encode(errors="replace").decode()  # names of files may not be Unicode

    def save(self, path: str | Path) -> Path:
        """Write the page, whole or not at all."""
        return write_text(Path(path), self.html(), "--out")

    def _table(self, head: str, rows: Iterable[str], kind: str = "") -> None:
        body = "\n".join(f"<tr>{row}</tr>" for row in rows)
        table = f"<table{kind}><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
        self._body.append(f'<div class="scroll" tabindex="0">{table}</div>')


def _decimals(column: Sequence[object]) -> int:
    """Return the number of decimals of a column's floats, by the largest one."""
    largest = max((abs(value) for value in column if isinstance(value, float)), default=0.0)
    return 1 if largest > 100 else 2 if largest > 1 else 3


def _cell(value: object, decimals: int | None = None) -> str:
    if value is None or value == "":
        return "&ndash;"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if decimals is None else f"{value:,.{decimals}f}"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))
