"""spgnn report: RUN, a study or lines of measure -> one HTML file with tables and pictures."""

from __future__ import annotations

from pathlib import Path

import click

from ..atomic import check_file, check_writable
from ..config import is_of_run
from ..errors import InputError, UsageError
from .console import fields_table, write, write_json
from .options import OneProcess, output_options


@click.command(cls=OneProcess)
@click.argument("run", metavar="RUN")
@click.option("--out", default="", metavar="FILE", help="HTML file to write [RUN/report.html]")
@click.option("--pictures", default="", metavar="DIR", help="also write each figure as PNG and SVG")
@click.option(
    "-k",
    "k",
    type=click.IntRange(1),
    default=None,
    metavar="K",
    help="k of the figures of one partition of a study",
)
@output_options
def report(run: str, out: str, pictures: str, k: int | None, as_json: bool) -> None:
    """Write the results of RUN as one HTML file that needs no network.

    \b
    RUN is one of:
      the --out folder of `spgnn train`            curves, cost, options
      the --out folder of runs/analysis/volumes    tables, figures of parts
      a file with lines of `spgnn measure --json`  tables, sweeps over k
    """
    from ..analysis.study_files import load_study, make_folder
    from ..report.run_report import read_run, run_page, run_pictures
    from ..report.study_report import pictures as study_pictures
    from ..report.study_report import study_page
    from ..report.style import FORMATS, save

    path = Path(run)
    if not path.exists():
        raise InputError(
            f"{run}: no such file or folder; expected what `spgnn train --out`, runs/analysis/volumes or `spgnn measure --json` wrote"
        )
    if path.is_file() or (path / "study.json").is_file():
        study = load_study(path)
        page, drawn = study_page(study, k), study_pictures(study, k)
    else:
        if k is not None:
            raise UsageError(f"-k {k} applies to studies, and {run} is a training; omit -k")
        found = read_run(path)
        page, drawn = run_page(found), run_pictures(found)
    target = Path(out) if out else path.with_suffix(".html") if path.is_file() else path / "report.html"
    check_file(target, "--out")
    studied = [path / name for name in ("study.json", "arrays.npz", "volumes.jsonl")]
    if is_of_run(path, target) or target.resolve() in (file.resolve() for file in studied):
        raise UsageError(f"--out {out}: is an input of the report; choose another file")
    make_folder(target.parent)
    check_writable(target, "--out")
    folder = make_folder(pictures) if pictures else None
    page.save(target)
    written = {"report": str(target), "pictures": page.pictures}
    if folder:
        written["files"] = [
            str(save(draw(), folder / (name + suffix))) for name, draw in drawn.items() for suffix in FORMATS
        ]
    if as_json:
        write_json(written)
    else:
        write(fields_table(run, written))
