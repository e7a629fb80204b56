"""spgnn predict: a run's best weights, GRAPH -> predictions in original node order."""

from __future__ import annotations

from typing import Any, get_args

import click

from ..config.names import Evaluation, Known
from ..errors import UsageError
from .console import fields_table, write, write_error, write_json
from .failure import explaining
from .options import Sections, complete, output_options


@click.command(cls=Sections)
@click.argument("run", shell_complete=complete, metavar="RUN")
@click.option(
    "--graph",
    default="",
    shell_complete=complete,
    metavar="GRAPH",
    help="graph to predict on, requires --out [the run's own]",
)
@click.option(
    "--out",
    default="",
    shell_complete=complete,
    metavar="FILE",
    help=".npy .csv .parquet .h5ad .vtu .vtk [RUN/predictions.npy]",
)
@click.option("--proba", is_flag=True, help="the probability of each class too; in .npy alone, (N, C)")
@click.option(
    "--embeddings",
    default="",
    shell_complete=complete,
    metavar="FILE",
    help="also write the inputs of the last layer: .npy .h5ad .vtu",
)
@click.option(
    "--evaluation",
    type=click.Choice(get_args(Evaluation)),
    default="auto",
    metavar="HOW",
    help="of parts: together, layerwise or auto, by memory",
)
@click.option("--memory", default="", metavar="SIZE", help="memory of a rank, such as 2GB [its share of the host's]")
@click.option(
    "--scratch",
    default="",
    shell_complete=complete,
    metavar="DIR",
    help="of layerwise, seen by all ranks [the folder of --out]",
)
@click.option("--top", type=click.IntRange(0), default=0, metavar="K", help="of links: the K best targets of each node")
@click.option(
    "--pairs", default="", shell_complete=complete, metavar="FILE", help="of links: a table of pairs to score"
)
@click.option(
    "--known",
    type=click.Choice(get_args(Known)),
    default="drop",
    metavar="drop|keep",
    help="with --top: omit the links of GRAPH, or keep them",
)
@output_options
def predict(run: str, as_json: bool, **options: Any) -> None:
    """Predict with the best weights of RUN, the --out folder of `spgnn train`: classes, numbers or links.

    Works in one process or on any number of ranks of mpirun or srun. The files are in original node order: .npy has a
    number per node, .csv and .parquet the columns id and class, with the names that GRAPH has, and p_CLASS of --proba.
    A file .h5ad with the cells of GRAPH gets columns of obs and matrices of obsm, a mesh .vtu or .vtk data of points.
    Without --graph, the graph has to be the one that RUN was trained on.

    \b
      spgnn predict RUN
      spgnn predict RUN --out FILE.csv --proba
      spgnn predict RUN --graph GRAPH --out FILE.npy
      spgnn predict RUN --graph PARTS --out FILE.npy --evaluation layerwise
      spgnn predict RUN --top 20 --out FILE.csv

    GRAPH may be a partition folder, with as many parts as there are ranks, or more. Where a rank has too little memory
    for its parts, the model is computed layer by layer, one part at a time, with hidden layers in --scratch; that needs
    `spgnn partition --hops 1`, or more, and a model whose layers multiply with the graph once at most.
    """
    from ..dist import world
    from ..experiment import predict as predict_run
    from ..experiment.stopping import StopSignals

    paths = {name: options.pop(name) or None for name in ("out", "embeddings")}
    source = options.pop("graph") or None
    with StopSignals(when="before the predictions were written"), world() as comm, explaining():
        if options["top"] or options["pairs"]:
            report = _links(run, comm, source, paths, options)
        else:
            links = [options.pop(name) for name in ("top", "pairs", "known")]
            if links[2] != "drop":
                raise UsageError("--known keep requires --top")
            report = predict_run(run, comm, source=source, show=write_error, **paths, **options)
        if comm.rank == 0 and as_json:
            write_json(report)
        elif comm.rank == 0:
            metric = report.pop("metric", "accuracy")
            scores = {name: f"{name} {metric}" for name in ("train", "val", "test")}
            write(fields_table(run, {scores.get(key, key): value for key, value in report.items()}))


def _links(run: str, comm, source: str | None, paths: dict[str, str | None], options: dict[str, Any]) -> dict[str, Any]:
    """Write a table of links; return the report. Collective."""
    from ..experiment.link_prediction import WantedLinks, predict_links

    for name in ("proba", "memory", "scratch"):
        if options[name]:
            raise UsageError(f"--{name} predicts no links; omit it with --top and --pairs")
    wanted = WantedLinks(**{name: options[name] for name in ("top", "pairs", "known")})
    return predict_links(run, comm, paths["out"] or "", wanted, source, paths["embeddings"], write_error)
