"""Page: text, tables and pictures as one self-contained HTML file, light or dark as its reader's system is.

Pictures (SVG) and styles are inside the page, there is no script, and a Content-Security-Policy forbids other sources.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

import numpy as np

from ..atomic import write_text
from .style import Picture

STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --quiet: #555; --line: #ddd; --link: #00558c;
  --best: #e5f3ec; --over: #f2f6f9; --code: #f5f5f5; --heat: 0 84 148; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #16181c; --quiet: #a8adb4; --line: #3a3f46;
  --link: #7cc0f0; --best: #1d4030; --over: #20242a; --code: #20242a; --heat: 70 150 210; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; color: var(--ink); background: var(--paper);
  margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 72rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .4rem; padding-top: .9rem; border-top: 1px solid var(--line); }
p { margin: .4rem 0 .8rem; max-width: 50rem; overflow-wrap: anywhere; }
.lead, dt, caption { color: var(--quiet); }
nav ol { columns: 16rem; margin: .5rem 0; padding-left: 1.4rem; }
a, summary { color: var(--link); }
.scroll { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .65rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--quiet); vertical-align: bottom; font-weight: 600; white-space: normal; min-width: 4.2rem; }
th.text, td.text { text-align: left; }
thead th.text { white-space: nowrap; }
td.text span { display: inline-block; white-space: normal; width: max-content; max-width: min(30rem, 55vw); overflow-wrap: anywhere; }
tr.first td { border-top: 2px solid var(--quiet); }
tbody tr:hover { background: var(--over); }
td.best { font-weight: 700; background: var(--best); }
dl { columns: 21rem; column-gap: 2rem; margin: .6rem 0; font-size: .92rem; }
dl div { display: grid; grid-template-columns: 10rem minmax(0, 1fr); gap: .8rem; break-inside: avoid; padding: .08rem 0; }
dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: .8rem 0; }
figure img { display: block; max-width: 100%; height: auto; }
.heats { display: flex; flex-wrap: wrap; gap: 1rem 2rem; }
.heats .scroll { max-width: 100%; }
.heat caption { text-align: left; padding: .2rem 0; overflow-wrap: anywhere; }
.heat th, .heat td { border: 1px solid var(--paper); padding: .2rem .35rem; min-width: 1rem; height: 1rem; font-weight: 400; }
.heat td { background: rgb(var(--heat) / var(--s, 0)); }
.heat td.deep { color: var(--paper); }
.heat thead th { vertical-align: bottom; text-align: center; }
.heat th.long span { writing-mode: vertical-rl; transform: rotate(180deg); max-height: 9rem; }
.heat th span { display: inline-block; max-width: 9rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; vertical-align: bottom; }
.heat tbody th { position: sticky; left: 0; background: var(--paper); }
.small th, .small td { padding: 0 .1rem; min-width: .9rem; font-size: .72rem; }
details { margin: .6rem 0; }
summary { cursor: pointer; }
pre { background: var(--code); padding: .6rem .8rem; font-size: .82rem; white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 700px) { body { padding: 1rem .8rem 3rem; } }
@media print { h2 { break-after: avoid; } figure { break-inside: avoid; } }
"""
MOST_NUMBERS = 16  # rows of a shaded table that shows its numbers; half of it where there are several
DEEP = ' class="deep"'
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
HTML = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<title>{title}</title><style>{style}</style></head>
<body><h1>{title}</h1><p class="lead">{lead}</p><nav><ol>{links}</ol></nav>
{body}
</body></html>
"""


class Page:
    """Sections of one HTML page, added from top to bottom; html() returns it, save() writes it."""

    def __init__(self, title: str, lead: str = ""):
        self.title, self.lead, self.pictures = title, lead, 0
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
        table = f"<table><thead><tr>{head}</tr></thead><tbody>\n" + "\n".join(body) + "\n</tbody></table>"
        self._body.append(f'<div class="scroll" tabindex="0">{table}</div>')

    def properties(self, values: Mapping[str, object]) -> None:
        """Add names and values, one per line."""
        pairs = (f"<div><dt>{escape(str(name))}</dt><dd>{_cell(value)}</dd></div>" for name, value in values.items())
        self._body.append(f"<dl>{''.join(pairs)}</dl>")

    def folded(self, summary: str, text: str) -> None:
        """Add preformatted text that opens on a click."""
        self._body.append(f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>")

    def picture(self, picture: Picture) -> None:
        """Add a section with a picture, its panels side by side, or below each other where the page is narrow."""
        self.section(picture.heading, picture.reading)
        wide, narrow = (
            "data:image/svg+xml;base64," + base64.b64encode(picture.svg(across).encode()).decode() for across in (2, 1)
        )
        alt = escape(f"{picture.title}. {picture.reading}", quote=True)
        self.pictures += 1
        self._body.append(
            f'<figure><picture><source media="(max-width: 700px)" srcset="{narrow}"><img src="{wide}" alt="{alt}">'
            "</picture></figure>"
        )

    def heats(self, tables: Mapping[str, np.ndarray], names: Sequence[str], tops, text=None) -> None:
        """Add square tables whose cells are shaded by the root of their share, under captions.

        Args: names  of rows and columns; tops: the value of the full shade, or one per row (R, 1).
              text   value -> text of a cell; beyond MOST_NUMBERS rows it is shown where the pointer is.
        """
        are_shown = len(names) <= MOST_NUMBERS // (1 + (len(tables) > 1))
        long = ' class="long"' if max(map(len, names)) > 4 or not are_shown else ""
        titles = [f'<span title="{escape(name, quote=True)}">{escape(name)}</span>' for name in names]
        head = "".join(f'<th scope="col"{long}>{title}</th>' for title in titles)
        self._body.append('<div class="heats">')
        for caption, values_RR in tables.items():
            self._body.append(
                f'<div class="scroll" tabindex="0"><table class="heat{(not are_shown) * " small"}">'
                f"{caption and f'<caption>{escape(caption)}</caption>'}<thead><tr><td></td>{head}</tr></thead><tbody>"
            )
            shades_RR = np.sqrt(values_RR / np.maximum(tops, 1e-300))
            for title, values, shades in zip(titles, values_RR.tolist(), shades_RR.tolist()):
                cells = []
                for value, shade in zip(values, shades):
                    said = escape(text(value), quote=True) if value else ""
                    of = f' style="--s:{shade:.2f}"{(shade > 0.75) * DEEP}' if value else ""
                    cells.append(f"<td{of}>{said}</td>" if are_shown or not said else f'<td{of} title="{said}"></td>')
                self._body.append(f'<tr><th scope="row">{title}</th>{"".join(cells)}</tr>')
            self._body.append("</tbody></table></div>")
        self._body.append("</div>")

    def html(self) -> str:
        """Return the page."""
        headings = enumerate(self._headings, 1)
        links = "".join(f'<li><a href="#s{i}">{escape(heading)}</a></li>' for i, heading in headings)
        title, body = escape(self.title), "\n".join(self._body)
        return HTML.format(policy=POLICY, style=STYLE, title=title, lead=escape(self.lead), links=links, body=body)

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
    return 1 if largest > 100 else 2 if largest > 1 else 3


def _cell(value: object, decimals: int = 2) -> str:
    if value is None or value == "":
        return "&ndash;"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,.{decimals}f}" if isinstance(value, float) else f"{value:,}"
    text = escape(str(value))
    return f"<span>{text}</span>" if len(text) > 30 else text
