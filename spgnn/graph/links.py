"""The links of a graph as targets: which are messages, which train, validate and test, and the proof that none leaks.

Shapes: N nodes, T targets, R relations, L lines of the list that was read, E nonzeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..config import link_shares
from ..errors import GraphError, UsageError, from_root
from .edge_attr import places_listed
from .graph import EDGE_META, Graph
from .split import named_split

TRAIN, VAL, TEST, MESSAGE = 0, 1, 2, -1  # MESSAGE: a link that is known and read, and no target
ROLES = {MESSAGE: "message", TRAIN: "train", VAL: "val", TEST: "test"}
INVERSE = 0.97  # share of the pairs of two relations that are mirrored, from which on one is the inverse of the other
SHARES = (0.1, 0.1, 0.0)  # of val, test and supervision


@dataclass(frozen=True, eq=False)
class Links:
    """The links of a graph: of each its ends, its relation, and what it is for.

    source_T, target_T  (T,) int32 original ids; relation_T: (T,) int32, all 0 without relations.
    split_T    (T,) int8: 0 train, 1 val, 2 test, -1 for a message edge that is no target. Train links are message edges too,
               unless is_supervised: then those of -1 alone are.
    n_nodes    N; n_sources: of a bipartite graph, whose sources are the nodes before it; 0 of others.
    is_both    a link has no direction.
    relations  R names, or None; kinds: what sources and targets are called, such as user and item.
    notes      what looks like a leak, or was left out, a sentence each.
    """

    source_T: np.ndarray
    target_T: np.ndarray
    relation_T: np.ndarray
    split_T: np.ndarray
    n_nodes: int
    n_sources: int = 0
    is_both: bool = True
    is_supervised: bool = False
    relations: tuple[str, ...] | None = None
    kinds: tuple[str, str] = ("source", "target")
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = ", ".join(f"{np.count_nonzero(self.split_T == role):,} {name}" for role, name in ROLES.items())
        return f"Links({counts}{f'; {self.n_relations:,} relations' if self.relations else ''})"

    @property
    def n_relations(self) -> int:
        """R, 1 without relations."""
        return 1 if self.relations is None else len(self.relations)

    @property
    def among(self) -> tuple[int, int]:
        """First and last + 1 of the nodes that may be targets."""
        return self.n_sources, self.n_nodes

    @property
    def is_directed_query(self) -> bool:
        """Whether queries have the form (h, r, ?) alone, as of users; else (?, r, t) too."""
        return self.n_sources > 0

    def counts(self) -> dict[str, int]:
        """Return how many links train, validate and test, and with relations how many there are."""
        counts = {f"{name}_links": len(self.of(role)) for role, name in ROLES.items() if role >= 0}
        return counts | ({} if self.relations is None else {"relations": self.n_relations})

    def of(self, *roles: int) -> np.ndarray:
        """Return the numbers of the links of some roles, rising."""
        return np.flatnonzero(np.isin(self.split_T, roles))

    def known(self, roles: Sequence[int], is_reversed: bool = False, by_relation: bool = True) -> sp.csr_array:
        """Return row = node * R + relation -> other ends, of the links of some roles; by_relation False: row = node.

        Args: is_reversed  rows are targets. A link without direction is in the rows of both ends.
        Its data are ones; its indices rise in each row, each once.
        """
        of = np.isin(self.split_T, tuple(roles))
        rows, columns = self.source_T[of], self.target_T[of]
        rows, columns = (columns, rows) if is_reversed else (rows, columns)
        relation = self.relation_T[of]
        if self.is_both:
            rows, columns = np.concatenate([rows, columns]), np.concatenate([columns, rows])
            relation = np.concatenate([relation, relation])
        R = self.n_relations if by_relation else 1
        row = rows.astype(np.int64) * R + (relation if by_relation else 0)
        shape = (self.n_nodes * R, self.n_nodes)
        found = sp.coo_array((np.ones(len(row), np.int8), (row, columns)), shape).tocsr()
        found.sum_duplicates()
        return found

    @cached_property
    def is_seen(self) -> np.ndarray:
        """Whether a link that trains, or is a message, reaches a node, (N,) bool."""
        seen, train = np.zeros(self.n_nodes, bool), self.of(TRAIN, MESSAGE)
        seen[self.source_T[train]] = seen[self.target_T[train]] = True
        return seen

    def is_unseen(self, links_t: np.ndarray) -> np.ndarray:
        """Return whether an end of links is a node that no training link reaches, (t,) bool."""
        return ~(self.is_seen[self.source_T[links_t]] & self.is_seen[self.target_T[links_t]])

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """Ends, relation and split of the links, by the names of the fields."""
        return {name: getattr(self, name) for name in ("source_T", "target_T", "relation_T", "split_T")}


def split_links(
    graph: Graph, val: float | None = None, test: float | None = None, supervision: float = 0.0, seed: int = 0,
    relations: bool = False,
) -> Graph:  # fmt: skip
    """Return the graph of message edges, whose `links` are the targets: what `train(..., task="links")` is given.

        graph = spgnn.split_links(spgnn.load_graph("edges.csv"), val=0.1, test=0.1)
        spgnn.train(model, spgnn.distribute(graph), task="links")

    Links are the edges as they are used (`Graph.with_edges`); of a graph with labels of edges, classes, each is a triple
    whose relation is the label. All links of a pair of nodes, in any direction and of any relation, are in one split:
    mirrored lines and inverse relations do not leak. Those of val and test are no edges of the graph that is returned.
    Args:   val, test    shares of the pairs. None: the split of the edges that was read, if there is one, else 0.1 each.
            supervision  share of the training pairs that are targets and no message edges; the others are message edges
                         and no targets. 0: training pairs are both.
            relations    message edges keep their relations, each with its inverse, for layers that read them.
    Raises: GraphError without a link that trains, and for a graph whose links are split; UsageError for other shares.
    """
    if graph.links is not None:
        raise GraphError(f"{graph.name} has links that are split already; give it as it is")
    check_no_cutoff(graph, "links")
    graph = (replace(graph, meta=graph.meta | {"typed": True}) if relations else graph).in_use()
    shares = [SHARES[0] if val is None else val, SHARES[1] if test is None else test, supervision]
    if not all(0 <= share < 1 for share in shares) or shares[0] + shares[1] >= 1:
        raise UsageError(
            f"val = {shares[0]:g}, test = {shares[1]:g}, supervision = {shares[2]:g}; expected shares from 0 to below 1, "
            "val and test below 1 in all"
        )
    is_given = graph.edge_split is not None and val is None and test is None
    source_L, target_L = _listed(graph)
    is_triple = graph.edge_y is not None and graph.edge_y.ndim == 1 and graph.edge_y.dtype.kind != "f"
    bipartite = graph.meta.get("bipartite") or {}
    n_sources, kinds = bipartite.get("sources", 0), tuple(bipartite.get("names", Links.kinds))
    is_both = graph.edges == "undirected" and not is_triple and not n_sources
    relation_L, names = (
        _relations(graph, source_L, target_L) if is_triple else (np.zeros(len(source_L), np.int32), None)
    )
    if is_both:
        source_L, target_L = np.minimum(source_L, target_L), np.maximum(source_L, target_L)
    if n_sources:
        is_turned = source_L >= n_sources
        source_L, target_L = np.where(is_turned, target_L, source_L), np.where(is_turned, source_L, target_L)
    split_L = named_split(graph.name, graph.edge_split, "0") if is_given else np.zeros(len(source_L), np.int8)
    found = Links(
        source_L, target_L, relation_L, split_L, graph.n_nodes, n_sources, is_both, supervision > 0, names, kinds
    )
    found, notes = _distinct(found, graph, is_given)
    if not is_given:
        found = replace(found, split_T=_drawn(found, shares, seed))
    elif supervision:
        found = replace(found, split_T=_supervised(found, found.split_T, supervision, np.random.default_rng(seed)))
    messages = _related(graph, found) if relations else _messages(graph, found)
    leaks = leak_notes(found, messages, is_given)
    found = replace(found, notes=(*notes, *_role_notes(found, graph.name), *leaks))
    return replace(messages, links=found)


def check_no_cutoff(graph: Graph, on: str) -> None:
    """Raise GraphError for tables with a cutoff, which drops messages to and from later rows, where edges are predicted."""
    if "cutoff" in graph.meta:
        raise GraphError(
            f"{graph.name} was read with --cutoff {graph.meta['cutoff']}, which guards targets of rows, and {on} are predicted: "
            "read its tables without a cutoff"
        )


def _role_notes(found: Links, name: str) -> list[str]:
    """Return notes on splits without a link; GraphError where none trains."""
    trained, val, test = (len(found.of(role)) for role in (TRAIN, VAL, TEST))
    if not trained:
        raise GraphError(
            f"{name}: no link trains: of {len(found.source_T):,} links {val:,} validate and {test:,} test; give smaller "
            "shares, or a graph with more links"
        )
    notes = [] if val else ["no link validates: the weights of the last epoch count as the best"]
    return notes if test else [*notes, "no link tests: scores of test are null"]


def split_as(graph: Graph, split: str, seed: int, relations: bool = False) -> Graph:
    """Return `split_links` of a graph by the text of --split, see link_shares."""
    named = dict(zip(("val", "test", "supervision"), link_shares(split) or ()))
    return split_links(graph, **named, seed=seed, relations=relations)


def _relations(graph: Graph, source_L: np.ndarray, target_L: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the relations of links, the classes of their edges, and their names. Raises: GraphError where one has none."""
    assert graph.edge_y is not None
    if (graph.edge_y < 0).any():
        at = int(np.argmax(graph.edge_y < 0))
        ends = f"{_name(graph, int(source_L[at]))} - {_name(graph, int(target_L[at]))}"
        raise GraphError(f"{graph.name}: listed edge {at}, {ends}, has no class, which is its relation; drop its row")
    names = graph.edge_classes or tuple(map(str, range(int(graph.edge_y.max(initial=0)) + 1)))
    return graph.edge_y.astype(np.int32), names


def _listed(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Return source and target of the links: the lines that were read, or the nonzeros of A, of undirected ones each once."""
    A = graph.A
    row_E = np.repeat(np.arange(graph.n_nodes, dtype=np.int32), np.diff(A.indptr))
    column_E = A.indices.astype(np.int32)
    if graph.edges == "reversed":
        row_E, column_E = column_E, row_E
    if graph.edge_ids is None:
        of = row_E <= column_E if graph.edges == "undirected" else slice(None)
        return row_E[of], column_E[of]
    is_listed = graph.edge_ids >= 0
    ids, L = graph.edge_ids[is_listed], graph.meta["edges_listed"]
    if len(ids) < L:
        raise GraphError(
            f"{graph.name}: {L - len(ids):,} of {L:,} listed edges weigh 0, which is no link; drop these rows"
        )
    ends_2L = np.empty((2, L), np.int32)
    ends_2L[:, ids] = row_E[is_listed], column_E[is_listed]
    return ends_2L[0], ends_2L[1]


def _distinct(links: Links, graph: Graph, is_given: bool) -> tuple[Links, list[str]]:
    """Return each link once in a split, of a split of our own without self-loops; and notes on what is there or was left out.

    A link that is in several splits stays in each: `leak_notes` counts it.
    """
    is_loop = links.source_T == links.target_T
    key = (_pair_keys(links.source_T, links.target_T, links.n_nodes) * links.n_relations + links.relation_T) * 4 + (
        links.split_T + 1
    )
    _, first = np.unique(key, return_index=True)
    keep = np.zeros(len(is_loop), bool)
    keep[first] = True
    twice, loops = int(np.count_nonzero(~keep)), int(np.count_nonzero(keep & is_loop))
    notes = []
    if loops:
        node = int(links.source_T[np.argmax(is_loop)])
        what = "are links of the split" if is_given else "are no targets"
        notes.append(f"{loops:,} self-loops, such as of node {_name(graph, node)}, {what}")
    keep &= ~is_loop | is_given
    if twice:
        notes.append(f"{twice:,} links are listed again, and count once")
    kept = {name: array[keep] for name, array in links.arrays.items()}
    return replace(links, **kept), notes


def _pair_keys(source: np.ndarray, target: np.ndarray, n_nodes: int, is_canonical: bool = False) -> np.ndarray:
    """Return one integer for each pair of ends; is_canonical: the same for both directions."""
    if is_canonical:
        source, target = np.minimum(source, target), np.maximum(source, target)
    return source.astype(np.int64) * n_nodes + target


def _drawn(links: Links, shares: Sequence[float], seed: int) -> np.ndarray:
    """Return a split by pairs of nodes: the same for a seed, whatever the order of the lines."""
    _, of_T = np.unique(_pair_keys(links.source_T, links.target_T, links.n_nodes, True), return_inverse=True)
    count, generator = int(of_T.max(initial=-1)) + 1, np.random.default_rng(seed)
    n_val, n_test = (int(round(share * count)) for share in shares[:2])
    role = np.zeros(count, np.int8)
    order = generator.permutation(count)
    role[order[:n_test]] = TEST
    role[order[n_test : n_test + n_val]] = VAL
    split_T = role[of_T]
    return _supervised(links, split_T, shares[2], generator) if shares[2] else split_T


def _supervised(links: Links, split_T: np.ndarray, share: float, generator: np.random.Generator) -> np.ndarray:
    """Return the split with all but a share of the training pairs as message edges alone."""
    of = np.flatnonzero(split_T == TRAIN)
    keys = _pair_keys(links.source_T[of], links.target_T[of], links.n_nodes, True)
    _, of_pair = np.unique(keys, return_inverse=True)
    count = int(of_pair.max(initial=-1)) + 1
    is_target = np.zeros(count, bool)
    is_target[generator.permutation(count)[: max(1, int(round(share * count)))]] = True
    split_T = split_T.copy()
    split_T[of[~is_target[of_pair]]] = MESSAGE
    return split_T


def _messages(graph: Graph, links: Links) -> Graph:
    """Return the graph of the message edges alone: those that train, or of supervised links those that do not; and loops."""
    of = links.of(MESSAGE) if links.is_supervised else links.of(MESSAGE, TRAIN)
    is_canonical = graph.edges == "undirected"
    keys = np.unique(_pair_keys(links.source_T[of], links.target_T[of], links.n_nodes, is_canonical))
    A = graph.A
    row_E = np.repeat(np.arange(graph.n_nodes), np.diff(A.indptr))
    ends = (A.indices, row_E) if graph.edges == "reversed" else (row_E, A.indices)
    key_E = _pair_keys(*ends, links.n_nodes, is_canonical)
    at = np.minimum(np.searchsorted(keys, key_E), max(len(keys) - 1, 0))
    keep = ends[0] == ends[1]
    keep |= keys[at] == key_E if len(keys) else False
    indptr = np.concatenate([[0], np.cumsum(keep)])[A.indptr].astype(A.indptr.dtype)
    kept = sp.csr_array((A.data[keep], A.indices[keep], indptr), A.shape)
    none: dict[str, Any] = dict.fromkeys(("y", "split", "classes", "edge_y", "edge_split", "edge_classes"))
    if graph.edge_attr is None or graph.edge_ids is None:
        return replace(graph, A=kept, **none)
    meta = {name: value for name, value in graph.meta.items() if name != "zeros"}
    if graph.n_edge_features or (kept.data != 1).any():
        graph = replace(
            graph, A=kept, edge_attr=graph.edge_attr[keep], edge_ids=graph.edge_ids[keep], meta=meta, **none
        )
        return graph if graph.n_edge_features else graph.without_edge_attr()
    kept.sum_duplicates()  # triples of several relations are one message edge
    kept.data[:] = 1
    return replace(
        graph, A=kept, edge_attr=None, edge_ids=None, meta={k: meta[k] for k in meta if k not in EDGE_META}, **none
    )


def _related(graph: Graph, links: Links) -> Graph:
    """Return the graph of the message edges with their relations, each triple as it was listed, and its inverse."""
    if links.relations is None or graph.edge_attr is None or graph.edge_ids is None:
        raise GraphError(
            f"{graph.name}: edges have no classes, which are their relations: give edge_y, or relations=False"
        )
    of = links.of(MESSAGE) if links.is_supervised else links.of(MESSAGE, TRAIN)
    key = lambda source, target, relation: _pair_keys(source, target, links.n_nodes, links.n_sources > 0) * R + relation
    R, (source_L, target_L) = links.n_relations, _listed(graph)
    wanted = key(links.source_T[of], links.target_T[of], links.relation_T[of])
    held, key_L = links.of(VAL, TEST), key(source_L, target_L, graph.edge_y)
    is_held = np.isin(key_L, key(links.source_T[held], links.target_T[held], links.relation_T[held]))
    keep_L = np.isin(key_L, wanted) | ((source_L == target_L) & ~is_held)
    keep = keep_L[places_listed(graph.edge_ids)]
    indptr = np.concatenate([[0], np.cumsum(keep)])[graph.A.indptr].astype(graph.A.indptr.dtype)
    kept = sp.csr_array((graph.A.data[keep], graph.A.indices[keep], indptr), graph.A.shape)
    none: dict[str, Any] = dict.fromkeys(("y", "split", "classes", "edge_split"))
    meta = {name: value for name, value in graph.meta.items() if name != "zeros"}
    rows = {"edge_attr": graph.edge_attr[keep], "edge_ids": graph.edge_ids[keep]}
    return replace(graph, A=kept, meta=meta, **rows, **none)


def leak_notes(links: Links, messages: Graph, is_given: bool) -> list[str]:
    """Return what leaks between messages and splits, a sentence with a count and an example each.

    Args:   is_given  the split was read; of one of our own a pair in two splits, or a target among the messages, is a defect.
    Raises: GraphError for these.
    """
    name = lambda node: _name(messages, int(node))
    pair = lambda t: f"{name(links.source_T[t])} - {name(links.target_T[t])}"
    keys, held, notes = _pair_keys(links.source_T, links.target_T, links.n_nodes, True), links.of(VAL, TEST), []
    A = messages.A
    row_E = np.repeat(np.arange(messages.n_nodes), np.diff(A.indptr))
    goals, what = (links.of(TRAIN, VAL, TEST), "target") if links.is_supervised else (held, "val and test")
    is_message = np.isin(keys[goals], _pair_keys(row_E, A.indices, links.n_nodes, True))
    if is_message.any():
        example = pair(goals[np.argmax(is_message)])
        notes.append(
            f"{_count(is_message)} of {len(goals):,} {what} links join nodes that a message edge joins, such as {example}"
        )
    train = links.of(TRAIN, MESSAGE)
    is_twice = np.isin(keys[links.of(TEST)], keys[links.of(VAL)])
    if is_twice.any():
        example = pair(links.of(TEST)[np.argmax(is_twice)])
        notes.append(
            f"{_count(is_twice)} of {len(is_twice):,} test links join nodes that a val link joins, such as {example}"
        )
    if notes and not is_given:
        raise GraphError(f"{messages.name}: the split leaks, which is a defect of spgnn: {'; '.join(notes)}")
    notes += _inverse_notes(links, train, held) if links.relations is not None and is_given else []
    seen, is_new = links.is_seen, links.is_unseen(held)
    if is_new.any():
        t = held[np.argmax(is_new)]
        node = links.source_T[t] if not seen[links.source_T[t]] else links.target_T[t]
        notes.append(
            f"{_count(is_new)} of {len(held):,} val and test links have a node that no training link has, such as {name(node)}"
        )
    if links.relations is not None:
        new = np.setdiff1d(links.relation_T[held], links.relation_T[train])
        if len(new):
            notes.append(f"{len(new):,} relations are in val or test alone, such as {links.relations[new[0]]}")
    return notes


def _inverse_notes(links: Links, train: np.ndarray, held: np.ndarray) -> list[str]:
    """Return a note on val and test triples whose inverse, of a relation that mirrors theirs, trains; INVERSE says which do."""
    R, inverse = links.n_relations, inverse_relations(links)
    forward = _pair_keys(links.source_T, links.target_T, links.n_nodes) * R + links.relation_T
    other_T = inverse[links.relation_T[held]]
    back = _pair_keys(links.target_T[held], links.source_T[held], links.n_nodes) * R + other_T
    leaks = (other_T >= 0) & np.isin(back, forward[train])
    if not leaks.any():
        return []
    r = links.relation_T[held[np.argmax(leaks)]]
    names = f"{links.relations[r]} and {links.relations[inverse[r]]}" if links.relations else f"{r} and {inverse[r]}"
    return [
        f"{_count(leaks)} of {len(held):,} val and test links train as their inverse, as relations {names} mirror each other"
    ]


def inverse_relations(links: Links) -> np.ndarray:
    """Return of each relation the one that mirrors it, (R,), -1 for none: INVERSE of the pairs of both are mirrored pairs.

    A symmetric relation is its own inverse.
    """
    R = links.n_relations
    keys = _pair_keys(links.source_T, links.target_T, links.n_nodes)
    back = _pair_keys(links.target_T, links.source_T, links.n_nodes)
    values, place = np.unique(np.concatenate([keys, back]), return_inverse=True)
    of = lambda at: (
        sp.csr_array((np.ones(len(at)), (at, links.relation_T)), (len(values), R)).astype(bool).astype(np.int64)
    )
    P, Q = of(place[: len(keys)]), of(place[len(keys) :])
    size_R, inverse = np.asarray(P.sum(axis=0)), np.full(R, -1, np.int64)
    shared = (P.T @ Q).tocoo()
    is_inverse = shared.data >= INVERSE * np.maximum(size_R[shared.row], size_R[shared.col])
    inverse[shared.row[is_inverse]] = shared.col[is_inverse]
    return inverse


def _count(is_so: np.ndarray) -> str:
    return f"{np.count_nonzero(is_so):,}"


def _name(graph: Graph, node: int) -> str:
    return str(node if graph.ids is None else graph.ids[node])


def shared_links(comm, links: Links | None) -> Links | None:
    """Return the links that rank 0 has, on all ranks. Collective."""
    names = ("n_nodes", "n_sources", "is_both", "is_supervised", "relations", "kinds", "notes")
    facts = from_root(
        comm, lambda: links and {"T": len(links.split_T)} | {name: getattr(links, name) for name in names}
    )
    if facts is None or comm.size == 1:
        return links
    T = facts.pop("T")
    known: dict[str, Any] = {name: tuple(of) if isinstance(of, list) else of for name, of in facts.items()}
    types = dict.fromkeys(("source_T", "target_T", "relation_T"), np.int32) | {"split_T": np.int8}
    arrays: dict[str, Any] = {name: np.empty(T, dtype) for name, dtype in types.items()}
    for name, array in arrays.items():
        if links is not None and comm.rank == 0:
            array[:] = links.arrays[name]
        comm.broadcast(array)
    return Links(**arrays, **known)
