"""Page: text, tables and figures as one self-contained HTML file, light or dark as its reader's system is.

Figures (SVG) and styles are inside the page, there is no script, and a Content-Security-Policy forbids other sources.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from ..atomic import write_text

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

    def shaded(self, values_RR: np.ndarray, names: Sequence[str], tops, text: Callable[[float], str]) -> None:
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
        pairs = (f"<div><dt>{escape(str(name))}</dt><dd>{_cell(value)}</dd></div>" for name, value in values.items())
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

    def _table(self, head: str, rows, kind: str = "") -> None:
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
