"""Page: text, tables and pictures as one self-contained HTML file.

Pictures (PNG) and styles are inside the page, there is no script, and a Content-Security-Policy forbids other sources.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from ..atomic import write_text
from . import style

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; color: #222; background: #fff; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 72rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.8rem 0 .4rem; padding-top: .9rem; border-top: 1px solid #ddd; }
p { margin: .4rem 0 .8rem; max-width: 50rem; }
.lead { color: #555; }
nav ol { columns: 16rem; margin: .5rem 0; padding-left: 1.4rem; }
a { color: #00558c; }
.scroll { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .65rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #e6e6e6; }
thead th { border-bottom: 2px solid #999; vertical-align: bottom; font-weight: 600; white-space: normal; min-width: 4.2rem; }
th.text, td.text { text-align: left; }
tr.first td { border-top: 2px solid #bbb; }
tbody tr:hover { background: #f2f6f9; }
td.best { font-weight: 700; background: #e5f3ec; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .15rem 1.2rem; margin: .6rem 0; font-size: .92rem; }
dt { color: #555; }
dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: .8rem 0; }
figure img { display: block; width: 100%; height: auto; }
details { margin: .6rem 0; }
summary { cursor: pointer; color: #00558c; }
pre { background: #f5f5f5; padding: .6rem .8rem; font-size: .82rem; white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 700px) { body { padding: 1rem .8rem 3rem; } figure img { width: 46rem; max-width: none; } }
@media print { h2 { break-after: avoid; } figure { break-inside: avoid; } }
"""
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Page:
    """Sections of one HTML page, added from top to bottom; html() returns it, save() writes it."""

    def __init__(self, title: str, lead: str = ""):
        self.title = title
        self.lead = lead
        self.pictures = 0
        self._headings: list[str] = []
        self._body: list[str] = []

    def section(self, heading: str, *paragraphs: str) -> None:
        """Begin a section; the list at the top links to it."""
        self._headings.append(heading)
        self._body.append(f'<h2 id="s{len(self._headings)}">{escape(heading)}</h2>')
        self._body += [f"<p>{escape(text)}</p>" for text in paragraphs]

    def table(
        self, rows: Sequence[Mapping], columns: Mapping[str, str], best: Sequence[str] = (), group: Sequence[str] = ()
    ) -> None:
        """Add a table.

        Args: columns  key of the rows -> heading.
              group    consecutive rows with equal values of these keys are a group.
              best     keys whose least value in a group is marked, unless all are equal.
        """
        kind = {key: ' class="text"' if any(isinstance(row[key], str) for row in rows) else "" for key in columns}
        decimals = {key: _decimals([row[key] for row in rows]) for key in columns}
        head = "".join(f'<th scope="col"{kind[key]}>{escape(text)}</th>' for key, text in columns.items())
        body = []
        for _, members in groupby(rows, lambda row: [row[key] for key in group]):
            members = list(members)
            values = {key: [row[key] for row in members if row[key] is not None] for key in best}
            least = {key: min(of) for key, of in values.items() if len(set(of)) > 1}
            for i, row in enumerate(members):
                cells = []
                for key in columns:
                    of = ' class="best"' if key in least and row[key] == least[key] else kind[key]
                    cells.append(f"<td{of}>{_cell(row[key], decimals[key])}</td>")
                first = ' class="first"' if body and group and i == 0 else ""
                body.append(f"<tr{first}>{''.join(cells)}</tr>")
        self._body.append(
            f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n'
            + "\n".join(body)
            + "\n</tbody></table></div>"
        )

    def properties(self, values: Mapping[str, object]) -> None:
        """Add names and values, one per line."""
        self._body.append(
            "<dl>"
            + "".join(f"<dt>{escape(str(name))}</dt><dd>{_cell(value)}</dd>" for name, value in values.items())
            + "</dl>"
        )

    def folded(self, summary: str, text: str) -> None:
        """Add preformatted text that opens on a click."""
        self._body.append(f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>")

    def picture(self, figure, alt: str) -> None:
        """Add a matplotlib figure as a PNG, with its alternative text."""
        data = style.png_bytes(figure)
        width, height = (round(inches * 96) for inches in figure.get_size_inches())
        source = base64.b64encode(data).decode("ascii")
        self.pictures += 1
        self._body.append(
            f'<figure class="scroll" tabindex="0"><img src="data:image/png;base64,{source}" width="{width}" height="{height}" '
            f'style="max-width:{max(width, 736)}px" alt="{escape(alt, quote=True)}"></figure>'
        )

    def html(self) -> str:
        """Return the page."""
        links = "".join(
            f'<li><a href="#s{i}">{escape(heading)}</a></li>' for i, heading in enumerate(self._headings, 1)
        )
        return "\n".join([
            "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">', '<link rel="icon" href="data:,">',
            f"<title>{escape(self.title)}</title>", f"<style>{STYLE}</style>", "</head>", "<body>",
            f"<h1>{escape(self.title)}</h1>", f'<p class="lead">{escape(self.lead)}</p>', f"<nav><ol>{links}</ol></nav>",
            *self._body, "</body>", "</html>", "",
        ])  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Write the page, whole or not at all."""
        return write_text(Path(path), self.html(), "--out")


def filled(rows: Sequence[Mapping], headings: Mapping[str, str]) -> tuple[list[dict], dict[str, str]]:
    """Return the rows with None for what they lack, and the headings of the columns that have a value."""
    rows = [dict.fromkeys(headings) | row for row in rows]
    return rows, {key: text for key, text in headings.items() if any(row[key] is not None for row in rows)}


def _decimals(column: Sequence[object]) -> int:
    """Return the number of decimals of a column's floats, by the largest one."""
    largest = max((abs(value) for value in column if isinstance(value, float)), default=0.0)
    return 1 if largest > 100 else 2 if largest >= 1 else 3


def _cell(value: object, decimals: int = 2) -> str:
    if value is None or value == "":
        return "&ndash;"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,.{decimals}f}" if isinstance(value, float) else f"{value:,}"
    return escape(str(value))
