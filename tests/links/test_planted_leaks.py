"""Leaks planted in tables are named with a count and an example; faults planted in the code are seen by `check`."""

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import spgnn
from spgnn.errors import GraphError
from spgnn.graph import links as code
from spgnn.graph.links import TEST, TRAIN, VAL, Links, leak_notes
from spgnn.layers import GCN, Stack
from spgnn.links import Candidates, LinkRanks
from spgnn.links.scored_pairs import negatives_of
from spgnn.training import link_scorer
from spgnn.training.link_scorer import ALL, LinkScorer
from spgnn.training.trainer import make_trainer

N, USERS = 60, 10
A_T, B_T = np.random.default_rng(4).integers(0, N, (2, 150))
RING = [(i, (i + 1) % 6, TRAIN) for i in range(6)]
TABLES = [
    ([(0, 1, TEST), (0, 2, TEST)], None, "1 of 2 val and test links join .* message .*such as 0 - 1"),
    ([(3, 2, VAL)], None, "1 of 1 val and test links join .* message .* such as 3 - 2"),
    ([(0, 3, VAL), (3, 0, TEST)], None, "1 of 1 test links join nodes that a val link joins, such as 3 - 0"),
    ([(0, 3, TEST), (0, 3, TEST)], None, "1 links are listed again"),
    ([(4, 4, TEST)], None, "1 self-loops, such as of node 4, are links of the split"),
    ([(8, 2, TEST)], None, "1 of 1 val and test .* no training link has, such as 8"),
    ([(0, 3, TEST)], np.repeat([0, 1], [6, 1]), "1 relations are in val or test alone, such as 1"),
    ([(b, a, TEST) for a, b, _ in RING], np.repeat([0, 1], 6), "6 of 6 .* relations 1 and 0 mirror each other"),
    ([(0, 3, TEST), (1, 4, VAL)], None, "nothing"),
]


@pytest.mark.parametrize("lines, relation, expected", TABLES)
def test_a_leak_of_a_table_is_named_with_its_count_and_an_example(lines, relation, expected):
    source, target, split = np.array(RING + lines).T
    graph = spgnn.graph_from_coo(source, target, 9, edge_split=split.astype(np.int8), edge_y=relation).with_edges("in")
    split = code.split_links(graph)
    assert sum(bool(re.match(expected, note)) for note in split.links.notes) == (expected != "nothing")
    later = replace(split, A=sp.csr_array(graph.A.toarray()))  # edges that are added after the split
    assert lines[0][:2] == (4, 4) or re.match("[126] of [126] .* message", leak_notes(split.links, later, True)[0])


def make(kind, supervision=0.0):
    a, b = (A_T % USERS, USERS + B_T % (N - USERS)) if kind == "users" else (np.r_[A_T, B_T[:40]], np.r_[B_T, A_T[:40]])
    of_users = {"bipartite": {"sources": USERS, "names": ["user", "item"]}} if kind == "users" else {}
    graph = spgnn.graph_from_coo(a, b, N, meta=of_users).with_edges("in" if kind == "lines" else "auto")
    return graph, code.split_links(graph, 0.2, 0.2, supervision, seed=1)


def dense(links, *roles):
    is_link_NN, of = np.zeros((N, N), bool), np.isin(links.split_T, roles)
    is_link_NN[links.source_T[of], links.target_T[of]] = True
    return is_link_NN | is_link_NN.T if links.is_both else is_link_NN


def counted(links, S_NN, seen, t, is_reversed):
    (a, b), known_NN = (links.source_T[t], links.target_T[t]), dense(links, *seen)
    out, scores, end = (known_NN[:, b], S_NN[:, b], a) if is_reversed else (known_NN[a], S_NN[a], b)
    counts = ~out & (np.arange(N) >= links.n_sources) & (np.arange(N) != end)
    return np.sum((scores > scores[end]) & counts), np.sum((scores == scores[end]) & counts)


def body(comm, graph):
    dgraph = spgnn.distribute(graph, comm, method="random")
    model, links, train = Stack(GCN(4, 4, bias=False), dropout=0.5), graph.links, graph.links.of(TRAIN)
    step = make_trainer(model, dgraph, on="links", loss="bpr", negatives=3).steps
    torch.nn.init.eye_(model.layers[0].W_FC)
    drawn = step.objective.negatives.draw(links.source_T[train], links.target_T[train], train, 1)
    rows_NF = dgraph.collect(step.scorer.logits().numpy())
    step.scorer.logits = lambda: torch.from_numpy(graph.X[dgraph.node_n])
    return rows_NF, drawn, step.scorer.final()["test"]


def check(kind):
    """Compare splits, messages, negatives, rows, ranks and scores with what plain arrays give."""
    raw, graph = make(kind)
    every, (links, train) = raw.in_use().A.toarray() != 0, (graph.links, dense(graph.links, TRAIN))
    pairs = [of | of.T for of in (dense(links, role) for role in (TRAIN, VAL, TEST))]
    other = ~np.eye(N, dtype=bool)
    assert np.array_equal(sum(map(np.int64, pairs)), (every | every.T) & other), "splits"
    is_message = every & (pairs[0] | ~other)
    assert np.array_equal(graph.A.toarray() != 0, is_message), "messages"
    sup = make(kind, 0.3)[1]
    assert not ((sup.A.toarray() != 0) & dense(sup.links, TRAIN)).any(), "messages"
    X_NF = np.random.default_rng(0).integers(-1, 2, (N, 4)).astype(np.float32)
    rows_NF, (node, is_source), found = spgnn.run_threads(2, body, replace(graph, X=X_NF))[0]
    A = replace(graph, A=sp.csr_array(is_message.astype(np.float32))).A
    assert np.allclose(rows_NF, spgnn.graph.normalise(A, "gcn") @ X_NF, atol=1e-5), "rows"
    at, held, S_NN = links.of(TRAIN), links.of(TEST), (X_NF @ X_NF.T).astype(np.float64)
    ends = np.where(is_source, node, links.source_T[at, None]), np.where(is_source, links.target_T[at, None], node)
    assert not train[ends].any() and (ends[0] != ends[1]).all(), "negatives"
    above, equal = np.array(
        [counted(links, S_NN, ALL, t, way) for way in (False, True)[: 1 + (kind != "users")] for t in held]
    ).T
    assert found["mrr"] == pytest.approx(np.mean(1 / (1 + above + equal / 2))), "ranks"
    if kind == "users":
        above, equal = np.array([counted(links, S_NN, (TRAIN, VAL), t, False) for t in held]).T
        share, users = (np.minimum(above + equal + 1, 20) - np.minimum(above, 20)) / (equal + 1), links.source_T[held]
        assert found["recall@20"] == pytest.approx(np.mean([share[users == u].mean() for u in set(users)])), "recall"
    s, t = links.source_T[held], links.target_T[held]
    (w,), (is_source,) = (of.T for of in negatives_of(links, 1, 0, ALL).draw(s, t, held, 0))
    d = S_NN[s, t][:, None] - S_NN[np.where(is_source, w, s), np.where(is_source, t, w)]
    assert found["roc_auc"] == pytest.approx(np.mean((d > 0) + (d == 0) / 2)), "roc_auc"


@pytest.mark.parametrize("kind", ["pairs", "lines", "users"])
def test_nothing_is_found_where_nothing_is_planted(kind):
    check(kind)


def of(owner, name, change):
    """A fault: a function, or a method, is `change` of itself and its arguments."""
    original = getattr(owner, name)
    return owner, name, lambda *args, **options: change(original, *args, **options)


KEYS = of(code, "_pair_keys", lambda of, *given: of(*given[:3]))
DEFECT = "defect of spgnn: [0-9]+ of .* such as"
P, L, U, S = "pairs", "lines", "users", LinkScorer
FAULTS = {
    "directed pairs": (L, DEFECT, KEYS),
    "directed pairs, unchecked": (L, "splits", KEYS, (code, "leak_notes", lambda *given: [])),
    "held-out messages": (P, DEFECT, of(code, "_messages", lambda of, g, links: replace(of(g, links), A=g.A))),
    "supervised messages": (P, DEFECT, of(code, "_messages", lambda of, g, a: of(g, replace(a, is_supervised=False)))),
    "lost mirrors": (P, "messages", of(code, "_messages", lambda of, *a: replace(m := of(*a), A=sp.triu(m.A).tocsr()))),
    "known negatives": (P, "negatives", of(Links, "known", lambda of, *a, **k: sp.csr_array(of(*a, **k).shape, dtype="i1"))),
    "mirrored negatives": (P, "negatives", of(Links, "known", lambda of, l, *a, **k: of(replace(l, is_both=False), *a, **k))),
    "known candidates": (L, "ranks", of(Candidates, "ranks", lambda of, self, x, target, known: of(self, x, target))),
    "the target equals itself": (P, "ranks", of(Candidates, "_count", lambda of, *a: of(*a) + [[0], [1]])),
    "ties in its favour": (P, "ranks", (LinkRanks, "rank_q", lambda self, ties="mean": 1 + self.above_q)),
    "one direction twice": (L, "ranks", of(S, "_queries", lambda of, self, Z, t, is_reversed: of(self, Z, t, False))),
    "users are candidates": (U, "ranks", of(S, "candidates", lambda of, self, Z, *_: Candidates(self.dgraph, Z))),
    "recall without test items": (U, "recall", of(S, "ranks", lambda of, self, Z, t, seen=ALL: of(self, Z, t))),
    "val items are candidates": (U, "ranks", of(S, "ranks", lambda of, *a: of(*a[:3], (TRAIN, TEST)))),
    "a mean of ROC-AUC": (P, "roc_auc", of(link_scorer, "auc_and_ap", lambda of, p, m: np.mean(
        [of(p[i::2], m[i::2]) for i in (0, 1)], axis=0).tolist())),
    "ROC-AUC of links": (P, "roc_auc", of(link_scorer, "negatives_of", lambda of, l, *a: of(l, 1, 0, ()))),
    "dropout in evaluation": (P, "rows", (Stack, "eval", lambda self: self.train())),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_code_is_seen(name, monkeypatch):
    kind, seen_by, *faults = FAULTS[name]
    for fault in faults:
        monkeypatch.setattr(*fault)
    with pytest.raises((AssertionError, GraphError), match=seen_by):
        check(kind)
