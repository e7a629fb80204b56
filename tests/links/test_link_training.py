"""Losses, gradients and scores of links, against dense float64 models, on any ranks, threads and batches."""

import numpy as np
import pytest
import torch
from worlds import parallel

import spgnn
from spgnn.graph import normalise
from spgnn.graph.links import TRAIN
from spgnn.layers import GCN, Stack
from spgnn.layers.decoders import DECODERS
from spgnn.training.trainer import make_trainer

N, F, R = 40, 8, 3
RNG = np.random.default_rng(2)
ENDS, RELATIONS = RNG.integers(0, N, (2, 150)), RNG.integers(0, R, 150)


def graph_of(kind):
    """A split graph: pairs without direction, triples, or users and items."""
    if kind == "triples":
        graph = spgnn.graph_from_coo(*ENDS, N, edge_y=RELATIONS)
    elif kind == "bipartite":
        users, items = ENDS[0] % 15, 15 + ENDS[1] % 25
        graph = spgnn.graph_from_coo(users, items, N, meta={"bipartite": {"sources": 15, "names": ["user", "item"]}})
    else:
        graph = spgnn.graph_from_coo(*ENDS, N)
    return spgnn.split_links(graph, val=0.2, test=0.2, seed=1)


def model_of(decoder, n_relations=1):
    kind = DECODERS[decoder]
    return Stack(GCN(F, F, act="tanh"), GCN(F, F), decoder=kind(F, n_relations)).double()


def dense_score(model, name, H, T, r):
    """The score of pairs, written out."""
    W = getattr(model.decoder, "W_RF", None)
    if name == "dot":
        return (H * T).sum(1)
    if name == "distmult":
        return (H * W[r] * T).sum(1)
    if name == "complex":
        of = lambda M: torch.complex(*M.chunk(2, dim=1))
        return (of(H) * of(W[r]) * of(T).conj()).sum(1).real
    d = model.decoder
    return torch.relu(H @ d.P_FF + T @ d.Q_FF + d.b_RF[r]) @ d.w_F


def dense_loss(graph, model, name, loss, X_NF, pairs):
    """The mean loss over all training links, of dense rows; pairs: (source, target, relation, negatives, is source)."""
    A = torch.from_numpy(normalise(graph.A.astype(float), "gcn").toarray())
    one, two = model.layers
    Z = A @ torch.tanh(A @ X_NF @ one.W_FC + (0 if one.b_C is None else one.b_C)) @ two.W_FC
    Z = Z if two.b_C is None else Z + two.b_C
    s, t, r, node, is_source = pairs
    score = lambda a, b, c: dense_score(model, name, Z[a], Z[b], c)
    positive = score(s, t, r)
    if loss == "softmax":
        first, last = graph.links.among
        every = torch.arange(first, last)
        ways = [False] if graph.links.n_sources else [False, True]
        terms = []
        for i in range(len(s)):
            for back in ways:
                c = r[i].repeat(len(every))
                of = score(every, t[i].repeat(len(every)), c) if back else score(s[i].repeat(len(every)), every, c)
                terms.append(torch.logsumexp(of, 0) - positive[i])
        return torch.stack(terms).sum() / (len(s) * len(ways))
    k = node.shape[1]
    a = torch.where(is_source, node, s[:, None]).ravel()
    b = torch.where(is_source, t[:, None], node).ravel()
    negative = score(a, b, r.repeat_interleave(k)).view(-1, k)
    log = torch.nn.functional.logsigmoid
    if loss == "bce":
        return -(log(positive).sum() + log(-negative).sum()) / ((1 + k) * len(s))
    return -log(positive[:, None] - negative).mean()


CASES = [
    ("pairs", "dot", "bce"), ("pairs", "dot", "bpr"), ("pairs", "dot", "softmax"), ("pairs", "mlp", "bce"),
    ("triples", "distmult", "softmax"), ("triples", "complex", "bce"), ("triples", "complex", "softmax"),
    ("triples", "mlp", "bpr"), ("bipartite", "dot", "bpr"), ("bipartite", "dot", "softmax"),
]  # fmt: skip


@parallel([1, 2, 3, 4], mpi=[3])
@pytest.mark.parametrize("kind, decoder, loss", CASES)
def test_loss_and_gradients_are_those_of_a_dense_model(comm, kind, decoder, loss):
    graph = graph_of(kind)
    dgraph = spgnn.distribute(graph, comm, dtype="float64", method="random").with_embedding(F, seed=3)
    model = model_of(decoder, graph.links.n_relations)
    trainer = make_trainer(model, dgraph, on="links", loss=loss, negatives=2, seed=5)
    step, links, of = trainer.steps, graph.links, trainer.steps.objective
    value, _ = step.gradient(of.train_T[of.is_own_T], len(of.train_T), 4, 7)
    X_NF = torch.from_numpy(dgraph.collect(dgraph.X.detach().numpy())).requires_grad_()
    train = links.of(TRAIN)
    drawn = map(torch.from_numpy, of.negatives.draw(links.source_T[train], links.target_T[train], train, 4))
    ends = (torch.from_numpy(of[train].astype(np.int64)) for of in (links.source_T, links.target_T, links.relation_T))
    reference = model_of(decoder, links.n_relations)
    reference.load_state_dict({name: of for name, of in model.state_dict().items() if name != "embedding"})
    expected = dense_loss(graph, reference, decoder, loss, X_NF, (*ends, *drawn))
    expected.backward()
    assert abs(value - float(expected.detach())) < 1e-10
    for (name, weight), other in zip(
        reference.named_parameters(), [p for n, p in model.named_parameters() if n != "embedding"]
    ):
        if weight.grad is not None:
            assert torch.allclose(other.grad, weight.grad, rtol=0, atol=1e-10), name
    assert np.abs(dgraph.collect(dgraph.X.grad.numpy()) - X_NF.grad.numpy()).max() < 1e-10
