"""Predictions of a model or a run, as a Python script or a notebook uses them.

Shapes: N nodes, n own rows, F columns, C classes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..config import Distribution, TrainConfig, select
from ..dist import Communicator
from ..distgraph import DistGraph
from ..distgraph.distribute import distribute, the_only_rank
from ..errors import UsageError, together
from ..graph import Graph
from ..layers.registry import operator_of
from .named import Names, prediction_columns
from .opening import Source
from .prediction import Computed, How, build_model, classes_of, compute, compute_rows, fitted, read_run
from .same_graph import MadeOn

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Predictions:
    """What a model says of all nodes, in original order.

    ids            (N,) what the user calls the nodes: their names, or 0 to N - 1.
    classes        (N,) int64, the class of each; (N, C) int8 of 0 and 1 where nodes have several labels.
    probabilities  (N, C) float32: softmax of the logits; their sigmoid where nodes have several labels.
    names          C names of the classes; None: numbers.
    embeddings     (N, F) inputs of the last layer, where they were requested; else None.
    """

    ids: np.ndarray
    classes: np.ndarray
    probabilities: np.ndarray
    names: tuple[str, ...] | None = None
    embeddings: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.classes)

    def __repr__(self) -> str:
        C = self.probabilities.shape[1]
        counts_C = self.classes.sum(0) if self.classes.ndim == 2 else np.bincount(self.classes, minlength=C)
        most = np.argsort(-counts_C, kind="stable")[:5]
        shown = ", ".join(f"{c if self.names is None else self.names[c]} {counts_C[c]:,}" for c in most)
        width = "" if self.embeddings is None else f", embeddings of width {self.embeddings.shape[1]}"
        return f"Predictions({len(self):,} nodes, {C} classes{width}: {shown}{', ...' if C > 5 else ''})"

    def to_frame(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with columns id, class (names, where there are any) and p_CLASS of each class."""
        import pandas

        return pandas.DataFrame(prediction_columns(self.classes, Names(self.ids, self.names), self.probabilities))


def predict(
    model: torch.nn.Module | str | Path,
    graph: Graph | DistGraph | str | Path | None = None,
    comm: Communicator | None = None,
    *,
    embeddings: bool = False,
    multilabel: bool | None = None,
    **options,
) -> Predictions:
    """Return the classes of all nodes, argmax of softmax(model(A, X)), and their probabilities.

        spgnn.predict("runs/wordnet-1").to_frame().to_csv("classes.csv")
        spgnn.predict(model, dgraph).probabilities

    Args:   model       a module called as model(A, X), or the folder of a run, whose best weights and options are taken.
            graph       a Graph, a DistGraph, GRAPH of the command line, or a partition folder; of a run None: its own.
            comm        of spgnn.world() or run_threads; None: the DistGraph's, else this process is the only rank.
            embeddings  the inputs of the last layer too; of a Stack of two layers or more.
            multilabel  nodes may have several classes, those with a logit above 0; None: as the run, or the labels.
            options     of distribute, where graph is no DistGraph, such as feature_norm: as in training.
    Raises: CheckpointError where the run's own graph is no longer the one that it was trained on.
    Collective; all ranks have the arrays, names of nodes where they hold the graph.
    """
    if isinstance(graph, DistGraph):
        comm = graph.comm
    comm = the_only_rank() if comm is None else comm
    if not isinstance(model, (str, Path)):
        if not isinstance(model, torch.nn.Module) or graph is None:
            got = f"a {type(model).__name__}" if graph is not None else "no graph"
            raise UsageError(
                f"predict got {got}; expected predict(model, graph), or predict(RUN) with the folder of a run"
            )
        first = next(model.parameters(), torch.zeros(()))
        options = {"dtype": str(first.dtype).removeprefix("torch.")} | options
        dgraph = graph if isinstance(graph, DistGraph) else distribute(graph, comm, **options)
        return _of_rows(model, dgraph, dgraph.is_multilabel if multilabel is None else multilabel, embeddings)
    folder = Path(model)
    config, source, state, spec, is_multilabel = together(comm, read_run, folder)
    if graph is None or isinstance(graph, str):
        made_on = together(comm, MadeOn.of, folder / "checkpoints") if graph is None else MadeOn()
        opened = Source.open(graph or source, fitted(config, graph, comm), comm)
        run = (spec, state, is_multilabel)
        computed = compute(opened, run, made_on, How(proba=True, evaluation="together"), embeddings, graph is None)
    else:
        how = asdict(select(Distribution, config)) | {"operator": operator_of(config, spec), "replication": 1}
        how |= {"device": "cpu"} | options
        graph = graph.with_edges(config.edges) if isinstance(graph, Graph) and graph.edges == "stored" else graph
        dgraph = graph if isinstance(graph, DistGraph) else distribute(graph, comm, **how)
        module = together(comm, build_model, spec, state, getattr(torch, config.dtype))
        return _of_rows(module, dgraph, is_multilabel, embeddings, together(comm, classes_of, folder))
    if graph is not None:
        computed.names.classes = together(comm, classes_of, folder)
    return _as_predictions(computed)


def load_run(folder: str | Path) -> tuple[torch.nn.Module, TrainConfig]:
    """Return the model of a run with its best weights, ready to evaluate, and the options of the run.

        model, config = spgnn.load_run("runs/wordnet-1")

    Raises: CheckpointError without a checkpoint, and for a custom model, which only its own code can rebuild.
    """
    config, _, state, spec, _ = read_run(Path(folder))
    return build_model(spec, state, getattr(torch, config.dtype)), config


def _of_rows(
    model: torch.nn.Module, dgraph: DistGraph, is_multilabel: bool, is_embedded: bool, classes=None
) -> Predictions:
    """Return the Predictions of a model on a DistGraph, in evaluation mode; the mode of the model stays as it was. Collective."""
    was_training = model.training
    model.eval()
    try:
        computed = Computed(Names(dgraph.ids, classes or dgraph.classes))
        compute_rows(model, dgraph, is_multilabel, computed, True, is_embedded)
    finally:
        model.train(was_training)
    return _as_predictions(computed)


def _as_predictions(computed: Computed) -> Predictions:
    names, classes = computed.names, computed.predictions_N
    ids = np.arange(len(classes)) if names.ids is None else names.ids
    shown = None if names.classes is None else tuple(names.classes)
    return Predictions(ids, classes, computed.proba_NC, shown, computed.embeddings_NF)
