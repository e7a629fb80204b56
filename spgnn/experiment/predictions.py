"""Runs as a Python script or a notebook uses them: predictions, load_run, and save_run, which makes one of a model.

Shapes: N nodes, n own rows, F columns, C classes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..atomic import write_text
from ..config import Distribution, TrainConfig, build, input_files, select, to_toml
from ..config.names import Task
from ..data import load_graph
from ..dist import Communicator
from ..distgraph import DistGraph
from ..distgraph.distribute import distribute, ranks_of
from ..errors import GraphError, InputError, SpgnnError, UsageError, together
from ..graph import Graph, GraphColumns, matched
from ..layers import EdgeDecoder, Stack
from ..layers.foreign.wrap import check_called
from ..layers.registry import listed_spec, operator_of, with_relations
from ..partition import PartitionFolder
from ..terminal import say
from ..training.metrics import SCORES
from .checkpoint import WEIGHTS, save_checkpoint, to_bytes
from .folder import has_results
from .later_graph import check_related, matched_graph
from .named import Names, prediction_columns
from .prediction import Computed, How, KeptRun, compute, compute_rows

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Predictions:
    """What a model says of all nodes, or edges, in original order.

    ids            (N,) what the user calls the nodes: their names, or 0 to N - 1.
    classes        (N,) int64, the class of each; (N, C) int8 of 0 and 1 where nodes have several labels.
    probabilities  (N, C) float32: softmax of the logits; their sigmoid where nodes have several labels.
    names          C names of the classes; None: numbers.
    embeddings     (N, F) inputs of the last layer, where they were requested; else None.
    numbers        (N,) or (N, C) float where the model predicts numbers; classes and probabilities are None then, and
                   names has the names of the columns.
    sources, targets  of edges, (N,), what the user calls their ends, and ids are their numbers in the list; else None.
    """

    ids: np.ndarray
    classes: np.ndarray | None
    probabilities: np.ndarray | None
    names: tuple[str, ...] | None = None
    embeddings: np.ndarray | None = None
    numbers: np.ndarray | None = None
    sources: np.ndarray | None = None
    targets: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        values_N, proba_NC = self._values, self.probabilities
        noun = "nodes" if self.sources is None else "edges"
        if proba_NC is None:
            low, high = (values_N.min(), values_N.max()) if len(self) else (np.nan, np.nan)
            return f"Predictions({len(self):,} {noun}, {values_N.size // max(len(self), 1)} numbers each: {low:.4g} to {high:.4g})"
        C = proba_NC.shape[1]
        counts_C = values_N.sum(0) if values_N.ndim == 2 else np.bincount(values_N, minlength=C)
        most = np.argsort(-counts_C, kind="stable")[:5]
        shown = ", ".join(f"{c if self.names is None else self.names[c]} {counts_C[c]:,}" for c in most)
        width = "" if self.embeddings is None else f", embeddings of width {self.embeddings.shape[1]}"
        return f"Predictions({len(self):,} {noun}, {C} classes{width}: {shown}{', ...' if C > 5 else ''})"

    def to_frame(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with columns id, class (names, where there are any) and p_CLASS of each class, or numbers.

        Of edges source, target and edge instead of id.
        """
        try:
            import pandas
        except ImportError:
            raise InputError("to_frame makes a table of pandas, which is not installed: pip install pandas") from None
        names = Names(self.ids, self.names)
        if self.sources is not None and self.targets is not None:
            names = Names(None, self.names, np.stack([self.sources, self.targets], axis=1))
        return pandas.DataFrame(prediction_columns(self._values, names, self.probabilities))

    @property
    def _values(self) -> np.ndarray:
        """The classes, or the numbers."""
        values_N = self.classes if self.numbers is None else self.numbers
        assert values_N is not None
        return values_N


def predict(
    model: torch.nn.Module | str | Path,
    graph: Graph | DistGraph | str | Path | None = None,
    comm: Communicator | Any = None,
    *,
    embeddings: bool = False,
    multilabel: bool | None = None,
    **options,
) -> Predictions:
    """Return the classes of all nodes, argmax of softmax(model(A, X)), and their probabilities; or numbers, model(A, X).

        spgnn.predict("runs/wordnet-1").to_frame().to_csv("classes.csv")
        spgnn.predict(model, dgraph).probabilities

    Of all edges, where the run was on edges, the last layer is an EdgeDecoder, or graph is a dgraph.on_edges().
    Args:   model       a module called as model(A, X), or the folder of a run, whose best weights and options are taken.
            graph       a Graph, a DistGraph, GRAPH of the command line, or a partition folder; of a run None: its own.
            comm        of spgnn.world(), run_threads or mpi4py; None: the DistGraph's, else this process is the only rank.
            embeddings  the inputs of the last layer too; of a Stack of two layers or more.
            multilabel  nodes may have several classes, those with a logit above 0; None: as the run, or the labels.
            options     of distribute, where graph is no DistGraph, such as feature_norm: as in training.
    Raises: CheckpointError where the run's own graph is no longer the one that it was trained on.
    Collective; all ranks have the arrays, names of nodes where they hold the graph.
    """
    comm = graph.comm if isinstance(graph, DistGraph) else ranks_of(comm)
    is_named = isinstance(model, (str, Path)) and (graph is None or isinstance(graph, (str, Path)))
    if options and (is_named or isinstance(graph, DistGraph)):
        raise UsageError(f"predict: {', '.join(options)} would change nothing; distribute(graph, ...) takes it")
    run = None
    if isinstance(model, (str, Path)):
        run = together(comm, KeptRun.read, Path(model))
        if graph is None or isinstance(graph, (str, Path)):
            run = run if multilabel is None else replace(run, task=_task(multilabel))
            how = How(run.task != "numbers", "together")
            return _as_predictions(compute(run, None if graph is None else str(graph), comm, how, embeddings))
        net: torch.nn.Module = together(comm, run.model)
        given: dict[str, Any] = asdict(select(Distribution, run.config))
        given |= {"operator": operator_of(run.config, run.spec), "replication": 1, "device": "cpu"}
        graph = together(comm, _as_the_run, graph, run, comm.rank == 0)
    elif isinstance(model, torch.nn.Module) and graph is not None:
        check_called(model)
        net, given = model, {"dtype": str(next(model.parameters(), torch.zeros(())).dtype)}
    else:
        got = f"a {type(model).__name__}" if graph is not None else "no graph"
        raise UsageError(f"predict got {got}; expected predict(model, graph), or predict(RUN) with the folder of a run")
    if isinstance(graph, (str, Path)) and not PartitionFolder(graph).is_valid:
        graph = together(comm, load_graph, graph)
    dgraph = graph if isinstance(graph, DistGraph) else distribute(graph, comm, **given | options)
    decodes = isinstance(net, Stack) and isinstance(net.layers[-1], EdgeDecoder)
    dgraph = dgraph.on_edges() if decodes or (run and run.config.on == "edges") else dgraph
    task = _task(multilabel) if multilabel is not None else _task_of(net, run or dgraph)
    names = Names(dgraph.ids, run.names.classes if run else dgraph.classes)
    was_training = net.training
    net.eval()
    try:
        return _as_predictions(compute_rows(net, dgraph, task, names, task != "numbers", embeddings)[1])
    finally:
        net.train(was_training)


def _as_the_run(graph: Graph | DistGraph, run: KeptRun, is_shown: bool) -> Graph | DistGraph:
    """Return a graph with the columns of a run; a DistGraph, whose rows are on the ranks, has to have them."""
    if isinstance(graph, Graph):
        graph = with_relations(graph, run.config.model)
        graph = graph.with_edges(run.config.edges) if graph.edges == "stored" else graph
        check_related(graph, run.spec, run.names)
        graph, found = matched_graph(graph, run.columns(), run.config.on)
    else:
        sizes = graph.n_features, graph.n_edge_features, 0
        found = matched(run.columns(), GraphColumns(graph.name, graph.names, *sizes, run.task))
        if found.features is not None or found.edge_features is not None:
            ours = "; ".join(found.notes) or "in another order"
            raise GraphError(
                f"{graph.name} has not the columns of the run ({ours}); predict(run, graph) puts those of a Graph in order"
            )
    for note in found.notes if is_shown else ():
        say(note)
    return graph


def _task(multilabel: bool) -> Task:
    return "labels" if multilabel else "classes"


def _task_of(model: torch.nn.Module, source: KeptRun | DistGraph) -> Task:
    """Return what a model predicts: numbers where it has Units, else what its run or the labels are."""
    return "numbers" if getattr(model, "units", None) is not None else source.task


def load_run(folder: str | Path) -> tuple[torch.nn.Module, TrainConfig]:
    """Return the model of a run with its best weights, ready to evaluate, and the options of the run.

        model, config = spgnn.load_run("runs/wordnet-1")

    Raises: CheckpointError without a checkpoint, and for a custom model, which only its own code can rebuild.
    """
    run = KeptRun.read(Path(folder))
    return run.model(), run.config


def _as_predictions(computed: Computed) -> Predictions:
    names, classes = computed.names, computed.predictions_N
    shown, of = None if names.classes is None else tuple(names.classes), names.of_rows(len(classes))
    ids, ends = of["id" if names.ends_L2 is None else "edge"], (of.get("source"), of.get("target"))
    is_number = classes.dtype.kind == "f"
    values = (None, None) if is_number else (classes, computed.proba_NC)
    return Predictions(ids, *values, shown, computed.embeddings_NF, classes if is_number else None, *ends)


def save_run(folder: str | Path, model: torch.nn.Module, graph: str, multilabel: bool = False, **options) -> None:
    """Write config.toml and a checkpoint with the weights of a Stack of layers of spgnn.layers.

        spgnn.save_run("runs/net", model, "planetoid/ind.cora", feature_norm="row")
        mpirun -n 4 spgnn predict runs/net

    Args:   graph       GRAPH of `spgnn train`, on which `predict` predicts unless it is given another; the run keeps the
                        names of its columns, where it can be read.
            multilabel  a node may have several classes: those with a logit above 0.
            options     of `spgnn train`, such as features, edges and feature_norm.
    Raises: UsageError for a model with a custom layer, an option that is not known, and a folder that holds a run.
    """
    spec, config = listed_spec(model), build(TrainConfig, options)
    lines = to_toml(config, {"graph": str(graph)}).splitlines(keepends=True)
    given = [line for line in lines if line.partition(" ")[0] in ("graph", *options)]
    folder = Path(folder)
    if has_results(folder):
        raise UsageError(f"{folder}: holds another run; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.toml", "".join(given))
    task: Task = "labels" if multilabel else "classes" if getattr(model, "units", None) is None else "numbers"
    manifest = {"val": None, "test": None, "metric": SCORES[task][0], "task": task, "model": asdict(spec)}
    with suppress(SpgnnError):  # without GRAPH it has no names
        files: dict[str, Any] = {name: path or None for name, path in input_files(config).items()}
        columns = GraphColumns.of(load_graph(graph, config.format or None, **files))
        if (columns.n_features, columns.n_classes) == (spec.arguments["f_in"], spec.arguments["n_classes"]):
            manifest |= {"names": columns.names.written()}
    save_checkpoint(folder / "checkpoints", 0, {WEIGHTS: lambda: to_bytes(model.state_dict())}, manifest)
