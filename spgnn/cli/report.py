"""spgnn report: a run or several -> one HTML file with tables and figures; of several a table on the terminal too."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..atomic import check_file, check_writable, new_file
from ..config import is_of_run
from ..errors import ResourceError, UsageError
from .console import fields_table, write, write_json, write_table
from .options import OneProcess, complete, output_options

ONLY_ON_THE_PAGE = ("train", "seconds")
OMIT = ("peak_rss_mb", "epochs", "ranks", "sent_mb")  # left out, in this order, until the table fits the terminal


@click.command(cls=OneProcess)
@click.argument("runs", shell_complete=complete, metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--out",
    default="",
    shell_complete=complete,
    metavar="FILE",
    help="HTML file to write [of one RUN: RUN/report.html]",
)
@click.option(
    "--pictures", default="", shell_complete=complete, metavar="DIR", help="also write each figure as PNG and SVG"
)
@output_options
def report(runs: tuple[str, ...], out: str, pictures: str, as_json: bool) -> None:
    """Write the results of RUN as one HTML file that needs no network.

    RUN is the --out folder of `spgnn train`. Of several, a table is printed, and --out writes a page.

    \b
      spgnn report runs/out/sage
      spgnn report runs/out/sage runs/out/gcn --out compare.html
    """
    from ..report.figures import draw
    from ..report.page import runs_page
    from ..report.runs import read_runs

    found = read_runs(runs)
    target = Path(out) if out else Path(runs[0], "report.html") if len(runs) == 1 else None
    if target is not None:
        check_file(target, "--out")
        if any(is_of_run(Path(run), target) for run in runs):
            raise UsageError(f"--out {target}: is an input of the report; choose another file")
        _make(target.parent)
        check_writable(target, "--out")
    folder = _make(Path(pictures)) if pictures else None
    os.environ.pop("MPLBACKEND", None)  # a notebook's may not be known here; the figures need none
    figures = draw(found) if target or folder else {}
    written: dict[str, object] = {}
    if target is not None:
        runs_page(found, figures).save(target)
        written = {"report": str(target), "pictures": len(figures) // 2}  # each as PNG and as SVG
    if folder:
        for name, content in figures.items():
            with new_file(folder / name) as file:
                file.write(content)
        written["files"] = [str(folder / name) for name in figures]
    if len(runs) > 1:
        _compare(found, as_json)
    elif as_json:
        write_json(written)
    if written and not as_json:
        count = {"files": f"{len(figures)} in {folder}"} if folder else {}
        write(fields_table(" ".join(runs), written | count))


def _compare(found: dict, as_json: bool) -> None:
    """Write a row per run, and the options that differ."""
    from ..report.runs import differing_options, options_table, results_table

    rows, columns = results_table(found)
    different = differing_options(found)
    if as_json:
        for name, row in zip(found, rows):
            write_json(row | {"options": {option: values[name] for option, values in different.items()}})
        return
    write_table(rows, {key: text for key, text in columns.items() if key not in ONLY_ON_THE_PAGE}, OMIT)
    if different:
        write("")
        write_table(*options_table(found))
    write("")


def _make(folder: Path) -> Path:
    """Return a folder, made if it does not exist. Raises: ResourceError if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be made: {error.strerror or error}") from None
    return folder
