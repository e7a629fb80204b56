"""spgnn compare: RUN RUN ... -> a table, and one HTML page with options that differ and curves."""

from __future__ import annotations

from pathlib import Path

import click

from ..atomic import check_file, check_writable
from ..config import is_of_run
from ..errors import UsageError
from .console import rows_table, write, write_json
from .options import OneProcess, output_options


@click.command(cls=OneProcess)
@click.argument("runs", metavar="RUN RUN...", nargs=-1, required=True)
@click.option("--out", default="", metavar="FILE", help="HTML page to write too")
@output_options
def compare(runs: tuple[str, ...], out: str, as_json: bool) -> None:
    """Compare runs, the --out folders of `spgnn train`: options that differ, scores, seconds, bytes; curves with --out.

    \b
      spgnn compare runs/out/sage runs/out/gcn --out compare.html
    """
    from ..report.run_comparison import comparison_page, differing_options, read_runs, table

    if len(runs) < 2:
        raise UsageError(f"compare {runs[0]}: expected two runs or more; `spgnn report {runs[0]}` shows one")
    if out:
        check_file(Path(out), "--out")
        check_writable(Path(out), "--out")
        for run in runs:
            if is_of_run(Path(run), Path(out)):
                raise UsageError(f"--out {out}: is a file of the run {run}; choose another file")
    found = read_runs(runs)
    rows, columns = table(found)
    different = differing_options(found)
    if out:
        comparison_page(found).save(out)
    if as_json:
        for name, row in zip(found, rows):
            write_json(row | {"options": {option: values[name] for option, values in different.items()}})
        return
    options = [{"run": name} | {option: _text(of[name]) for option, of in different.items()} for name in found]
    write(rows_table(rows, columns))
    if different:
        write("\n" + rows_table(options, {"run": "options that differ"} | {option: option for option in different}))
    if out:
        write(f"\npage  {out}")


def _text(value) -> str:
    return "default" if value is None else str(value) or "none"
