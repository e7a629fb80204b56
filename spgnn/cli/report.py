"""spgnn report: a run, several runs or a study -> one HTML file with tables and pictures; of several runs a table."""

from __future__ import annotations

from pathlib import Path

import click

from ..atomic import check_file, check_writable
from ..config import is_of_run
from ..errors import InputError, ResourceError, UsageError
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
@click.option("-k", "k", type=click.IntRange(1), default=None, metavar="K", help="k of a study's volumes between ranks")
@output_options
def report(runs: tuple[str, ...], out: str, pictures: str, k: int | None, as_json: bool) -> None:
    """Write the results of RUN as one HTML file that needs no network.

    \b
    RUN is one of:
      the --out folder of `spgnn train`            curves, cost, options
      several of them                              a table; with --out a page
      a file with lines of `spgnn measure --json`,
      or of runs/analysis/volumes --json           a study: tables, sweeps over k

    \b
      spgnn report runs/out/sage runs/out/gcn --out compare.html
    """
    from ..report import run_report, study_report
    from ..report.style import FORMATS

    paths = [Path(run) for run in runs]
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; expected one of `spgnn train --out` or `measure --json`")
    is_study = len(paths) == 1 and not paths[0].is_dir()
    if is_study:
        found = study_report.read_study(paths[0])
        study_report.between_ranks(found, k)  # refuses a k that no line has
        page_of, drawn = (lambda: study_report.study_page(found, k)), study_report.pictures(found)
    else:
        if k is not None:
            raise UsageError(f"-k {k} applies to studies, and {paths[0]} is a training; omit -k")
        found = run_report.read_runs(paths)
        page_of, drawn = (lambda: run_report.runs_page(found)), run_report.pictures(found)
    target = Path(out) if out else _default(paths[0]) if len(paths) == 1 else None
    if target is not None:
        check_file(target, "--out")
        if any(is_of_run(path, target) for path in paths):
            raise UsageError(f"--out {target}: is an input of the report; choose another file")
        _make(target.parent)
        check_writable(target, "--out")
    folder = _make(Path(pictures)) if pictures else None
    written = {}
    if target is not None:
        page = page_of()
        page.save(target)
        written = {"report": str(target), "pictures": page.pictures}
    if folder:
        files = [folder / (name + suffix) for name in drawn for suffix in FORMATS]
        written["files"] = [str(drawn[path.stem].save(path)) for path in files]
    if len(paths) > 1:
        _compare(found, as_json)
    if as_json and len(paths) == 1:
        write_json(written)
    elif written and not as_json:
        count = {"files": f"{len(written['files'])} in {folder}"} if folder else {}
        write(fields_table(" ".join(runs), written | count))


def _compare(found: dict, as_json: bool) -> None:
    """Write a row per run, and the options that differ."""
    from ..report.run_report import differing_options, options_table, table

    rows, columns = table(found)
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


def _default(path: Path) -> Path:
    return path / "report.html" if path.is_dir() else path.with_suffix(".html")


def _make(folder: Path) -> Path:
    """Return a folder, made if it does not exist. Raises: ResourceError if it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be made: {error.strerror or error}") from None
    return folder
