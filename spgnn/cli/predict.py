"""spgnn predict: a run's best weights, GRAPH -> predictions in original node order."""

from __future__ import annotations

import click

from .console import fields_table, write, write_json
from .failure import explaining
from .options import Sections, output_options


@click.command(cls=Sections)
@click.argument("run", metavar="RUN")
@click.option("--graph", default="", metavar="GRAPH", help="graph to predict on, requires --out [the run's own]")
@click.option("--out", default="", metavar="FILE", help="file to write, .npy [RUN/predictions.npy]")
@click.option(
    "--embeddings", default="", metavar="FILE", help="also write the inputs of the last layer, .npy (N, hidden)"
)
@output_options
def predict(run: str, graph: str, out: str, embeddings: str, as_json: bool) -> None:
    """Predict every node's class with the best weights of RUN, the --out folder of `spgnn train`.

    Works in one process or on any number of ranks of mpirun or srun. A run that was trained on a partition folder
    needs as many ranks as its training had. The files are in original node order.
    """
    from ..dist import world
    from ..experiment import predict as predict_run

    with world() as comm, explaining():
        report = predict_run(run, comm, source=graph or None, out=out or None, embeddings=embeddings or None)
        if comm.rank == 0 and as_json:
            write_json(report)
        elif comm.rank == 0:
            scores = {name: f"{name} accuracy" for name in ("train", "val", "test")}
            write(fields_table(run, {scores.get(key, key): value for key, value in report.items()}))
