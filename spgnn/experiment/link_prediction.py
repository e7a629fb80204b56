"""Links that a run predicts: the best of each node, and the scores of given pairs; in Python `load_links`.

Shapes: q queries, k of each, p pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from ..atomic import check_not_read, check_writable
from ..config import is_of_run
from ..config.names import Known
from ..dist import Communicator
from ..distgraph.distribute import make_dgraph, ranks_of
from ..errors import CheckpointError, FormatError, GraphError, UsageError, check_choice, together
from ..graph import Graph, Links
from ..layers.decoders import decoder_of
from ..training.link_scorer import ALL, QUERIES, LinkScorer
from .checkpoint import check_graph, check_names, graph_facts, made_on, write_array
from .later_graph import check_related, matched_graph
from .named import Columns, EndNames, check_table, places, write_table
from .opening import Show, check_run, distribution
from .prediction import PREDICT, KeptRun, fitted

Ids = Sequence | np.ndarray


@dataclass(frozen=True, slots=True)
class WantedLinks:
    """What is predicted: the `top` best targets of each node, or the scores of a table of `pairs`.

    pairs  has columns source, target and, where links have any, relation; known: see LinkPredictor.top.
    """

    top: int = 0
    pairs: str = ""
    known: Known = "drop"


def predict_links(
    run_dir: str,
    comm: Communicator,
    out: str,
    wanted: WantedLinks,
    source: str | None = None,
    embeddings: str | None = None,
    show: Show = None,
) -> dict[str, Any]:
    """Write the best targets of each node, or the scores of pairs, as a table, and return what a report says.

    Args: run_dir     folder that `spgnn train --task links --out` wrote; source: another GRAPH, see load_links.
          out         .csv or .parquet; embeddings: .npy for the rows Z (N, F) too.
    Collective.
    """
    top, pairs, known = wanted.top, wanted.pairs, wanted.known
    together(comm, _check_outputs, Path(run_dir), out, top, pairs, root=0)
    run = together(comm, KeptRun.read, Path(run_dir))
    given = {"out": out, "top": top, "pairs": pairs, "known": known, "embeddings": embeddings or ""}
    check_run(comm, source or run.graph, run.config, **given)
    found = open_links(run, comm, source, show)
    report: dict[str, Any] = {"ranks": comm.size, "n": found.scorer.dgraph.n_nodes, "links": len(found.links.split_T)}
    if embeddings:
        Z_NF = found.scorer.dgraph.collect(found.Z_nF.numpy())
        together(comm, write_array, Path(embeddings), Z_NF, "--embeddings", root=0)
        report["embeddings"] = embeddings
    columns = found.top(k=top, known=known) if top else None
    if columns is None:
        given = together(comm, pairs_of, Path(pairs), found.links)
        try:
            columns = found.score(*given)
        except UsageError as problem:
            raise FormatError(f"{pairs}: {problem}") from None
    together(comm, write_table, Path(out), columns, "--out", root=0)
    return report | {"predictions": out, "rows": len(columns[found.links.kinds[0]])}


def _check_outputs(folder: Path, out: str, top: int, pairs: str) -> None:
    """Raise unless there is a run, and one table to write, whose file can be written and is none of the run's."""
    if not (folder / "config.toml").exists():
        raise CheckpointError(f"{folder}: no config.toml; expected the --out folder of `spgnn train`")
    if bool(top) == bool(pairs):
        raise UsageError("--top K and --pairs FILE make a table each; give one of them")
    path = Path(out)
    if path.suffix not in (".csv", ".parquet") or is_of_run(folder, path):
        what = "is a file of the run" if is_of_run(folder, path) else "--top and --pairs write a table"
        raise UsageError(f"--out {out or 'is missing'}: {what}; give a file .csv or .parquet")
    check_table(path, "--out")
    check_writable(path, "--out")
    if pairs:
        check_not_read(out, "--out", (pairs,))


@dataclass(frozen=True, eq=False)
class LinkPredictor:
    """The best weights of a run on links, and the rows of all nodes that its model computes.

    ids  (N,) what the user calls nodes; None: numbers. links: of the run's graph, all of which are known.
    Collective, as its methods: all ranks call them with the same nodes and have the result.
    """

    scorer: LinkScorer
    Z_nF: torch.Tensor
    ids: np.ndarray | None

    @property
    def links(self) -> Links:
        """The links of the graph."""
        return self.scorer.links

    @property
    def names(self) -> EndNames:
        """What the user calls the ends of links."""
        return EndNames(self.links, self.ids)

    def top(self, nodes: Ids | None = None, k: int = 20, known: Known = "drop") -> Columns:
        """Return for each node the k best targets, in descending score: columns source, target, score, rank.

        Sources and targets of a bipartite graph are called as its columns, user and item. With relations there is a list
        for each relation that the node is the head of, and a column relation.
        Args:   nodes  as the user calls them; None: all that have a link as sources.
                known  drop: links of the graph, of any split, are left out; keep.
        Raises: UsageError for a node that the graph does not have.
        """
        check_choice("known", known, get_args(Known))
        links, scorer, R = self.links, self.scorer, self.links.n_relations
        all_known = scorer.known(ALL, False)
        rows = np.flatnonzero(np.diff(all_known.indptr))
        if nodes is not None:
            wanted = self.names.places(nodes, 0, links.kinds[0])
            rows = rows[np.isin(rows // R, wanted)] if R > 1 else wanted
        candidates = scorer.candidates(self.Z_nF)
        ids_qk, scores_qk = np.empty((len(rows), k), np.int64), np.empty((len(rows), k), self.Z_nF.numpy().dtype)
        for start in range(0, len(rows), QUERIES):
            at = slice(start, start + QUERIES)
            node_q, relation_q = np.divmod(rows[at], R)
            left_out = all_known[rows[at]] if known == "drop" else None
            pair = None if left_out is None else (left_out.indptr.astype(np.int64), left_out.indices.astype(np.int64))
            ids_qk[at], scores_qk[at] = candidates.top(scorer.query(self.Z_nF, node_q, relation_q), k, pair, node_q)
        is_there = ids_qk >= 0
        source, relation = np.divmod(np.repeat(rows, is_there.sum(1)), R)
        rank = np.broadcast_to(np.arange(1, k + 1), ids_qk.shape)[is_there]
        return self.names.columns(source, ids_qk[is_there], relation) | {"score": scores_qk[is_there], "rank": rank}

    def score(self, source: Ids, target: Ids, relation: Ids | None = None) -> Columns:
        """Return the score of each pair, or triple: the columns of top, without rank, and whether the link is known.

        Raises: UsageError for names that the graph does not have, and for lengths that differ.
        """
        links, R = self.links, self.links.n_relations
        node_p, target_p = (self.names.places(of, end, links.kinds[end]) for end, of in enumerate((source, target)))
        relation_p = np.zeros(len(node_p), np.int64)
        if links.relations is not None:
            relation_p = places(np.array(links.relations, object), () if relation is None else relation, "relation")
        if not len(node_p) == len(target_p) == len(relation_p):
            raise UsageError(
                f"score got {len(node_p)} sources, {len(target_p)} targets"
                + f" and {len(relation_p)} relations" * (R > 1)
                + "; expected as many of each"
            )
        score_p = self.scorer.pair_scores(self.Z_nF, node_p, target_p, relation_p)
        known = self.scorer.known(ALL, False)
        is_known = (
            np.asarray(known[node_p * R + relation_p, target_p]).ravel() > 0 if len(node_p) else np.empty(0, bool)
        )
        columns = self.names.columns(node_p, target_p, relation_p)
        return columns | {"score": score_p, "known": is_known.astype(int)}


def load_links(
    run: str | Path, comm: Communicator | Any = None, graph: str | Path | Graph | None = None
) -> LinkPredictor:
    """Return what predicts links: the model of a run of --task links with its best weights, on its graph.

        run = spgnn.load_links("runs/shop-1")
        run.top(["ada"], k=20)
        run.score(["ada"], ["soap"])

    Args:   run    folder that `spgnn train --task links --out` wrote.
            graph  a later GRAPH with the same features, whose links are all known; the Graph of split_links that a script
                   trained on, on all ranks; None: the GRAPH of the run.
    Raises: CheckpointError where the run's own graph is no longer the one that it was trained on; UsageError for a run on
            something else, and for another graph where the run learned rows of its own nodes.
    Collective.
    """
    comm = ranks_of(comm)
    kept = together(comm, KeptRun.read, Path(run))
    if isinstance(graph, Graph):
        return open_links(kept, comm, own=graph)
    return open_links(kept, comm, None if graph is None else str(graph))


def open_links(
    run: KeptRun, comm: Communicator, source: str | None = None, show: Show = None, own: Graph | None = None
) -> LinkPredictor:
    """Return the LinkPredictor of a run; own: its graph, where source names none. Collective."""
    if run.config.on != "links":
        raise UsageError(f"{run.folder} is a run on {run.config.on}; links are predicted by a run of --task links")
    rows = run.state.pop("embedding", None)
    if rows is not None and source is not None:
        raise UsageError(
            f"--graph {source}: the run learned a row for each of its own nodes (--features embedding); train on that graph, "
            "or with features that nodes of any graph have"
        )
    config = fitted(run.config, source, comm)
    config = replace(config, partition="", split="0,0" if source is not None else config.split)
    path, before = together(comm, made_on, run.folder / "checkpoints") if source is None else (run.folder, {})
    opened = None if own is not None else run.open(source, config, comm, show)

    def read() -> Graph:
        graph = own if opened is None else opened.read()
        assert graph is not None
        if source is None:
            return graph
        check_related(graph, run.spec, run.names)
        links, (graph, columns) = graph.links, matched_graph(graph, replace(run.columns(), n_classes=0), "nodes")
        if show is not None:
            for note in columns.notes:
                show(f"spgnn: {note}")
        return replace(graph, links=links)

    model = together(comm, run.model)
    dgraph = make_dgraph(read, comm, None, distribution(config, comm, run.spec))
    if source is None:
        check_names(path, run.names, dgraph.names, PREDICT)
    if rows is not None:
        if len(rows) != dgraph.n_nodes:
            raise CheckpointError(f"{run.folder}: has rows of {len(rows)} nodes; {dgraph.name} has {dgraph.n_nodes}")
        dgraph = replace(dgraph, X=rows[torch.from_numpy(dgraph.node_n)].to(next(model.parameters(), rows).dtype))
    check_graph(path, before, graph_facts(dgraph), PREDICT)
    if dgraph.n_features != (f_in := run.spec.arguments["f_in"]):
        raise CheckpointError(f"the graph has {dgraph.n_features} features; the run was trained on {f_in}")
    if dgraph.links is None:
        raise GraphError(f"{dgraph.name} has no links")
    decoder = decoder_of(model, run.spec.arguments["n_classes"], dgraph.links.n_relations)
    scorer = LinkScorer(model, dgraph, decoder, run.config.seed)
    named = opened.names.ids if opened is not None else None if own is None else own.ids
    ids = comm.all_gather_json(None if named is None else named.tolist())[0]
    return LinkPredictor(
        scorer,
        scorer.logits(),
        None if ids is None else np.array(ids, None if ids and isinstance(ids[0], int) else object),
    )


def pairs_of(path: Path, links: Links) -> list[np.ndarray]:
    """Return the columns of a table of pairs: source, target and, where links have any, relation, by name or by order.

    Raises: FormatError without them, and naming the row of an id that is missing.
    """
    from ..data.readers.frames import read_frame
    from ..data.readers.heads import SOURCE_NAMES, TARGET_NAMES
    from ..data.table_columns import texts_of

    kinds = [(kind.lower(), *more) for kind, more in zip(links.kinds, (SOURCE_NAMES, TARGET_NAMES))]
    wanted = (*kinds, ("relation", "predicate"))[: 2 if links.relations is None else 3]
    names = tuple(name for group in wanted for name in group)
    frame, _ = read_frame(path, names, lambda columns: columns[:1], lambda columns: columns)
    columns = frame.column_names
    found = [next((name for name in columns if name.lower() in group), "") for group in wanted]
    if not all(found):
        order = columns if len(columns) == len(wanted) else []
        order = [order[0], order[2], order[1]] if len(order) == 3 else order
        if not order:
            raise FormatError(
                f"{path}: has columns {', '.join(columns)}; expected {', '.join(group[0] for group in wanted)}"
            )
        found = order
    return [_whole(path, name, texts_of(frame.column(name))) for name in found]


def _whole(path: Path, name: str, texts: np.ndarray) -> np.ndarray:
    lost = texts == ""
    if lost.any():
        raise FormatError(f"{path}: column {name!r} has no value in row {int(np.argmax(lost)) + 1}")
    is_number = all(text.isascii() and text.isdigit() for text in texts.tolist())
    return texts.astype(np.int64) if is_number else texts
