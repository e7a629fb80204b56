"""predict: a run's best weights on its graph, or on another graph with the same features."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..atomic import check_not_read, check_writable
from ..config import NAMED_FILE, Distribution, TrainConfig, input_files, is_of_run, read_toml, toml_values
from ..config.names import Evaluation, Task
from ..cost.pairs import valid_replications
from ..data.readers.anndata_file import ENDING, add_to_h5ad
from ..data.readers.mesh_file import WITH_DATA, add_to_mesh
from ..dist import Communicator
from ..dist.consistency import digest
from ..distgraph import DistGraph, Parts
from ..distgraph.distribute import make_dgraph
from ..errors import CheckpointError, GraphError, InputError, UsageError, together
from ..graph import ColumnMap, ColumnNames, Graph, GraphColumns, NodeTypes, matched
from ..layers import Stack
from ..layers.registry import ModelSpec
from ..partition import load_partition
from ..partition.folder.matched_folder import MatchedFolder, columns_of_folder
from ..spmm.kernels.buffers import sum_dtype
from ..training.metrics import RANKED, SCORES, count, main_scores, predicted, probabilities, ranked_scores
from ..training.parts.evaluation import choose_evaluation
from ..training.parts.inference import LayerwiseScorer
from ..training.scorer import split_of
from ..training.steps.step import sum_ranks
from .checkpoint import (
    best_checkpoint,
    check_graph,
    check_names,
    finite,
    graph_facts,
    load_checkpoint,
    made_on,
    model_spec,
    read_json,
    write_array,
)
from .later_graph import check_related, columns_of_run, matched_graph, unknown_classes
from .named import Names, check_table, prediction_columns, write_table
from .opening import Show, Source, check_run, distribution

ADDED = (ENDING, *WITH_DATA)  # of files that predictions are added to
PREDICT = "predict this one by --graph GRAPH --out FILE, or train again"


@dataclass(frozen=True, slots=True)
class How:
    """How the classes are computed, and what else: the keywords of `predict`."""

    proba: bool = False
    evaluation: Evaluation = "auto"
    memory: str = ""
    scratch: str = ""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """The best weights of a run, and what it was trained with.

    graph  GRAPH of the run; state: its weights by name; spec: what builds the model; names: of columns.
    """

    folder: Path
    config: TrainConfig
    graph: str
    state: dict[str, torch.Tensor]
    spec: ModelSpec
    task: Task
    metric: str
    names: ColumnNames

    @classmethod
    def read(cls, folder: Path) -> KeptRun:
        """Return the run of a folder. Raises: CheckpointError without whole weights, or for a custom model."""
        path = folder / "config.toml"
        config = read_toml(TrainConfig, path)
        graph = toml_values(path).get("graph", "")
        best = best_checkpoint(folder / "checkpoints")
        state, manifest = load_checkpoint(best)
        if not isinstance(graph, str):
            raise CheckpointError(f"{path}: graph = {graph!r}; expected a name or path")
        spec = model_spec(best, manifest)
        task, metric = manifest.get("task", "classes"), manifest.get("metric", "accuracy")
        summary = folder / "summary.json"
        names = manifest["names"] if "names" in manifest else read_json(summary) if summary.exists() else {}
        return cls(folder, config, graph, state, spec, task, metric, ColumnNames.read(names))

    def model(self) -> Stack:
        """Return the model with its weights, ready to evaluate."""
        model = self.spec.build().to(dtype=sum_dtype(getattr(torch, self.config.dtype)))  # before loading rounds
        try:
            model.load_state_dict(self.state)
        except RuntimeError as error:
            raise CheckpointError(f"the weights do not fit the model of their manifest: {error}") from None
        return model.eval()

    def open(self, source: str | None, config: TrainConfig, comm: Communicator, show: Show = None) -> Source:
        """Return Source.open of GRAPH, of the run's own where source is None. Collective."""
        try:
            return Source.open(source or self.graph, config, comm, show)
        except InputError as problem:
            if source is not None:
                raise
            raise InputError(
                f"{self.folder}: its graph is not found: {problem}. Was it moved, or made in a script? Name it by --graph GRAPH "
                "--out FILE, of links by spgnn.load_links(RUN, graph=graph)"
            ) from None

    def columns(self) -> GraphColumns:
        """Return what the model was trained on, with which a later graph is compared."""
        return columns_of_run(self.spec, self.names, self.task)


@dataclass(slots=True)
class Computed:
    """What a model says of the nodes of a graph, in original order.

    predictions_N  on rank 0 at least; found: what a report says of them; notes: of a later graph, on rank 0 at least.
    """

    names: Names
    predictions_N: np.ndarray
    proba_NC: np.ndarray | None = None
    embeddings_NF: np.ndarray | None = None
    found: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def predict(
    run_dir: str,
    comm: Communicator,
    source: str | None = None,
    out: str | None = None,
    embeddings: str | None = None,
    show: Show = None,
    **how: Any,
) -> dict[str, Any]:
    """Predict every node with the best weights of a run; write the classes in original node order.

    Args:    run_dir     the folder that `spgnn train --out` wrote.
             source      GRAPH, with `out`; default: the run's.
             out         .npy, .csv or .parquet to write, see named; default: run_dir/predictions.npy, and
                         predictions.csv if the graph has names. embeddings: .npy for the inputs of the last layer (N, hidden).
             show        called on rank 0 with lines on a later graph: columns that are dropped, classes that are unknown.
             proba       with `out`, the probability of each class too; in .npy (N, C) float32 alone.
             evaluation  on a partition folder with halos: together, over all ranks; layerwise, see Layerwise, one part in
                         memory at a time; auto: layerwise where a rank has too little memory for its parts.
             memory      of a rank, such as 2GB; "": an equal share of the host's.
             scratch     of layerwise: a folder that all ranks see, for rows of hidden layers; "": beside the predictions.
    Returns: report with the file, sizes, and scores if the graph has labels.
    Raises:  CheckpointError where the run's own graph is no longer the one that it was trained on.
    Collective, on any number of ranks; a run whose GRAPH is a partition folder needs as many as it has parts, or fewer.
    """
    folder, wanted = Path(run_dir), How(**how)
    together(comm, _check_outputs, folder, source, out, embeddings, wanted.proba, root=0)
    run = together(comm, KeptRun.read, folder)
    config, graph = run.config, source or run.graph
    inputs = (graph, *(() if source else (*input_files(config).values(), config.partition)))
    for option, path in (("--out", out), ("--embeddings", embeddings)):
        if path and not str(path).endswith(ADDED):  # of cells or points, which get new columns
            together(comm, check_not_read, path, option, inputs, root=0)
    given = asdict(wanted) | {"out": out or "", "embeddings": embeddings or ""}
    given["weights"] = digest(*(run.state[name].numpy() for name in sorted(run.state)))
    check_run(comm, graph, config, **given)
    if config.on == "links":
        raise UsageError(
            f"{folder} is a run on links: give --top K for the best targets of each node, or --pairs FILE for the scores of "
            "pairs, with --out FILE"
        )
    if config.on == "edges" and out and out.endswith(ADDED):
        raise UsageError(
            f"--out {out}: has cells or points, and {folder} is a run on edges; give .npy, .csv or .parquet"
        )
    target = Path(out) if out else folder / "predictions.npy"
    wanted = replace(wanted, scratch=wanted.scratch or str(target.parent))
    computed = compute(run, source, comm, wanted, bool(embeddings))
    if comm.rank == 0 and show is not None and computed.notes:
        show("\n".join(f"spgnn: {note}" for note in computed.notes))
    together(comm, _write, target, computed, "--out" if out else "", root=0)
    report = {"predictions": str(target), "n": 0, "classes": run.spec.arguments["n_classes"], "ranks": comm.size}
    if embeddings:
        together(comm, _write_embeddings, Path(embeddings), computed, root=0)
        report["embeddings"] = embeddings
    return finite(report | computed.found)


def compute(run: KeptRun, source: str | None, comm: Communicator, wanted: How, is_embedded: bool) -> Computed:
    """Return what the model of a run says of GRAPH, of the run's own where source is None.

    Raises: GraphError for a later graph whose columns are not the run's, see graph.matched. Collective.
    """
    is_own, task = source is None, run.task
    path, before = together(comm, made_on, run.folder / "checkpoints") if is_own else (run.folder, {})
    opened, columns = run.open(source, fitted(run.config, source, comm), comm), ColumnMap()
    if opened.folder is not None and not is_own:
        columns = together(
            comm, lambda folder: matched(run.columns(), columns_of_folder(folder, run.config.on)), opened.folder
        )
        opened = replace(opened, folder=MatchedFolder(opened.folder, columns, run.config.on))

    def read() -> Graph:
        nonlocal columns
        graph = opened.read()
        if not is_own:
            check_related(graph, run.spec, run.names)
            graph, columns = matched_graph(graph, run.columns(), run.config.on)
        return graph

    config, how = opened.config, distribution(opened.config, comm, run.spec)
    model = together(comm, run.model)
    if is_embedded and len(model.layers) == 1:
        raise UsageError("--embeddings: a model of one layer has none, the input of its last layer is X")
    needs_rows = (
        "--on edges" * (config.on == "edges")
        or "--embeddings" * is_embedded
        or "--proba" * wanted.proba
        or f"--model {run.spec.family}, which reads relations," * ("message_relations" in run.spec.arguments)
    )
    parts = _parts_of(opened, how, model, wanted, needs_rows)
    if parts is not None:
        if is_own:
            check_names(path, run.names, parts.source.facts.names, PREDICT)
        check_graph(path, before, graph_facts(parts), PREDICT)
        computed = _compute_parts(run, model, parts, opened.names, wanted.scratch, None if is_own else columns)
    else:
        dgraph = make_dgraph(opened.folder or read, comm, None, how)
        dgraph = dgraph if config.on == "nodes" else dgraph.on_edges()
        if is_own:
            check_names(path, run.names, dgraph.names, PREDICT)
        check_graph(path, before, graph_facts(dgraph), PREDICT)
        if dgraph.n_features != (f_in := run.spec.arguments["f_in"]):
            raise CheckpointError(f"the graph has {dgraph.n_features} features; the run was trained on {f_in}")
        if opened.folder is not None and not is_own:
            check_related(dgraph, run.spec, run.names)
        Z_nC, computed = compute_rows(model, dgraph, task, opened.names, wanted.proba, is_embedded)
        computed.names.keep_types(dgraph.A.node_types, run.names.target_types)
        edges = {} if dgraph.on == "nodes" else {"edges": len(computed.predictions_N)}
        computed.found = {"n": dgraph.n_nodes} | edges
        if dgraph.y_n is not None and (is_own or dgraph.split_n is not None):
            scored = comm.all_gather_json(columns.scored)[0]
            split_n = split_of(dgraph, config.split, config.seed)
            _add_scores(computed, run, dgraph, Z_nC if scored is None else Z_nC[:, scored], split_n, columns)
    if not is_own:
        computed.names.classes, computed.notes = run.names.classes, columns.notes + computed.notes
    return computed


def _add_scores(
    computed: Computed, run: KeptRun, dgraph: DistGraph, Z_nC: torch.Tensor, split_n: np.ndarray, columns: ColumnMap
) -> None:
    """Add the scores of logits, where labels are of the model's kind, and what is said of them. Collective."""
    y_n, task, C = dgraph.y_n, run.task, Z_nC.shape[1]
    computed.notes += columns.label_notes
    assert y_n is not None
    if dgraph.task != task or not C or (task != "classes" and dgraph.n_classes != C):
        return
    ranked = ranked_scores(Z_nC, y_n, split_n, dgraph.comm) if run.metric in RANKED else None
    counts = count(Z_nC, y_n, split_n, max(C, dgraph.n_classes), dgraph.comm, task)
    computed.found |= main_scores(counts, task, run.metric, ranked)
    computed.notes += unknown_classes(counts, C, columns.classes, dgraph.name, dgraph.on)


@torch.no_grad()
def compute_rows(
    model: torch.nn.Module, dgraph: DistGraph, task: Task, names: Names, proba: bool, is_embedded: bool
) -> tuple[torch.Tensor, Computed]:
    """Return the logits of the own nodes, (n, C), and what is said of all nodes.

    Args: is_embedded  the inputs of the last layer too, (N, hidden).
    Raises: UsageError where a model has no embeddings. Collective.
    """
    embeddings_NF = None
    if is_embedded:
        if not isinstance(model, Stack) or len(model.layers) == 1:
            raise UsageError("embeddings are the input of the last layer of a Stack of two layers or more")
        if dgraph.X is None:
            raise GraphError(f"{dgraph.name} has no features, of which embeddings are made")
        H_nF = model.embed(dgraph.A, dgraph.X)
        embeddings_NF = replace(dgraph, on="nodes").collect(H_nF.to(sum_dtype(H_nF.dtype)).cpu().numpy())
    Z_nC = model(dgraph.A, dgraph.X)
    predictions_N = dgraph.collect(predicted(Z_nC, task))
    proba_NC = dgraph.collect(probabilities(Z_nC, task)) if proba else None
    names.ends_L2 = None if dgraph.on == "nodes" else dgraph.edge_ends()
    return Z_nC, Computed(names, predictions_N, proba_NC, embeddings_NF)


def _parts_of(source: Source, how: Distribution, model: Stack, wanted: How, needs_rows: str) -> Parts | None:
    """Return the parts of a partition folder where a model is to be evaluated layer by layer, None where it is not.

    Args:   needs_rows  an option that needs the rows of all nodes, or "".
    Raises: UsageError where that is requested and is not possible. Collective.
    """
    folder, evaluation = source.folder, wanted.evaluation
    if evaluation == "layerwise" and needs_rows:
        raise UsageError(f"{needs_rows} requires --evaluation together, which has the rows of all nodes")
    if evaluation == "layerwise" and folder is None:
        raise UsageError(
            "--evaluation layerwise reads parts, and GRAPH is no partition folder; "
            "give the folder of `spgnn partition GRAPH -k K --hops 1 --out DIR` by --graph"
        )
    if evaluation == "together" or folder is None or needs_rows:
        return None
    if evaluation == "auto" and folder.manifest["hops"] == 0:
        return None
    parts = Parts(folder, source.comm, hops=1, split=source.config.split, **asdict(how))
    return parts if choose_evaluation(model, parts, evaluation, wanted.memory) == "layerwise" else None


def _compute_parts(
    run: KeptRun, model: Stack, parts: Parts, names: Names, scratch: str, columns: ColumnMap | None
) -> Computed:
    """Return what a model says of the nodes of parts, layer by layer. Collective.

    Scores need labels of the model's kind, in a split that was not made up for another graph.
    Args: columns  of a later graph; None: the graph is the run's, whose split it has.
    """
    scorer = LayerwiseScorer(model, parts, scratch, run.task, columns)
    is_compared = parts.n_classes > 0 and (columns is None or parts.source.facts.has_split)
    columns = columns or ColumnMap()
    fits = scorer.n_counted > 0 and (run.task == "classes" or parts.n_classes == scorer.n_counted)
    is_counted = is_compared and fits and scorer.passes.reader.task == run.task
    counts, predictions_N = scorer.evaluate(is_counted, is_predicted=True)
    read = sum_ranks(scorer.passes.bytes_read, parts.comm)
    found = {"n": parts.n_nodes, "evaluation": "layerwise", "parts": parts.k, "bytes_read": read}
    notes = list(columns.label_notes) if is_compared else []
    names.keep_types(NodeTypes.read(parts.source.folder.manifest), run.names.target_types)
    if counts is not None:
        found |= main_scores(counts, run.task, SCORES[run.task][0] if run.metric in RANKED else run.metric)
        notes += (
            unknown_classes(counts, scorer.C, columns.classes, parts.name, "nodes") if run.task == "classes" else []
        )
    return Computed(names, np.empty(0) if predictions_N is None else predictions_N, found=found, notes=notes)


def _write(path: Path, computed: Computed, option: str) -> None:
    """Write predictions; where they are the run's own, also the table of a graph with names."""
    predictions_N, proba_NC, names = computed.predictions_N, computed.proba_NC, computed.names
    if path.suffix == ENDING:
        columns = prediction_columns(predictions_N, names)
        obsm = {} if proba_NC is None else {"spgnn_proba": proba_NC}
        add_to_h5ad(path, columns.pop("id"), option, {f"spgnn_{name}": of for name, of in columns.items()}, obsm)
        return
    if path.suffix in WITH_DATA:
        is_numbers = predictions_N.dtype.kind == "f"
        columns = prediction_columns(predictions_N, names) if is_numbers else {"class": predictions_N}
        columns = {f"spgnn_{name}": of for name, of in columns.items() if name != "id"}
        proba = {} if proba_NC is None else {"spgnn_proba": proba_NC}
        add_to_mesh(path, len(predictions_N), option, columns | proba)
        return
    if path.suffix in (".csv", ".parquet"):
        write_table(path, prediction_columns(predictions_N, names, proba_NC), option)
        return
    write_array(path, predictions_N if proba_NC is None else proba_NC, option)
    if not option and names.has_any:
        write_table(path.with_name(NAMED_FILE), prediction_columns(predictions_N, names))


def _write_embeddings(path: Path, computed: Computed) -> None:
    """Write the inputs of the last layer: an array, or X_spgnn of obsm in a file of cells."""
    assert computed.embeddings_NF is not None
    H_NF = computed.embeddings_NF
    if path.suffix == ENDING:
        ids = computed.names.of_rows(len(H_NF))["id"]
        add_to_h5ad(path, ids, "--embeddings", obsm={"X_spgnn": H_NF})
    elif path.suffix in WITH_DATA:
        add_to_mesh(path, len(H_NF), "--embeddings", {"spgnn_X": H_NF})
    else:
        write_array(path, H_NF, "--embeddings")


def _check_outputs(folder: Path, source: str | None, out: str | None, embeddings: str | None, proba: bool) -> None:
    """Raise unless there is a run, the files can be written, and neither the run nor the other output needs them."""
    own = folder / "predictions.npy"
    if not (folder / "config.toml").exists():
        raise CheckpointError(f"{folder}: no config.toml; expected the --out folder of `spgnn train`")
    if source is not None and not out:
        raise UsageError(f"--graph {source} requires --out: {own} holds the predictions for the run's own graph")
    if proba and not out:
        raise UsageError("--proba requires --out, a file .npy, .csv or .parquet")
    check_table(Path(out or own), "--out")
    for option, path in (("out", Path(out or own)), *([("embeddings", Path(embeddings))] if embeddings else [])):
        check_writable(path, f"--{option}")
        is_own = option == "out" and source is None and path.resolve() == own.resolve()
        if is_of_run(folder, path) and not is_own:
            raise UsageError(f"--{option} {path}: is a file of the run; choose another")
        endings = (".npy", ".csv", ".parquet", *ADDED) if option == "out" else (".npy", *ADDED)
        if path.suffix not in ("", *endings):
            raise UsageError(f"--{option} {path}: expected a file {' or '.join(endings)}")
        if path.suffix in ADDED and not path.is_file():
            raise UsageError(
                f"--{option} {path}: no such file; predictions are added to a file of the same cells or points: copy it"
            )
    if out and embeddings and not str(out).endswith(ADDED) and Path(out).resolve() == Path(embeddings).resolve():
        raise UsageError(f"--embeddings {embeddings}: is --out already; choose another file")


def fitted(config: TrainConfig, source: str | None, comm: Communicator) -> TrainConfig:
    """Return the options of a run as they are for GRAPH, where it is given, and for these ranks. Collective."""
    if source is not None:  # another graph has its own features, labels and split
        features = config.features if config.features in ("degree", "ones") else ""  # that any graph has
        config = replace(config, format="", features=features, labels="", split="auto", method=TrainConfig().method)
    config = replace(config, device="cpu")  # one pass, and where the run was trained may be elsewhere
    if config.replication not in valid_replications(comm.size):
        config = replace(config, replication=1)
    if config.partition and (source is not None or not together(comm, _fits, config, comm.size)):
        config = replace(config, partition="")
    return config


def _fits(config: TrainConfig, size: int) -> bool:
    """Whether the parts that the run was made with are still there, and as many as these ranks need, or more."""
    return Path(config.partition).is_dir() and load_partition(config.partition).k * config.replication >= size
