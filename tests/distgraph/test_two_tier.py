"""Two-tier exchange: a row crosses between two hosts once, results are the dense ones, bytes of each tier as predicted."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from counted_bytes import once, train_and_compare
from dense_model import gradients_are_the_dense_ones
from graphs import random_graph
from scipy.sparse.csgraph import maximum_bipartite_matching
from worlds import parallel, some

from spgnn import explain
from spgnn.analysis import measure
from spgnn.cost.pairs import grid_of
from spgnn.distgraph import distribute
from spgnn.layers import GAT, GCN, Stack
from spgnn.partition import part_graph
from spgnn.partition.cover import two_tier_tables
from spgnn.partition.hosts import host_of
from spgnn.spmm.exchange.relayed import RelayedPlan

HOSTS = {3: (2,), 4: (1, 2), 6: (2,), 8: (4,)}  # ranks: hosts; of 3 ranks one host has 2


def small_graph(use="directed", sparse=False, **more):
    return random_graph(n=60, edges=240, sparse=sparse, weighted=True, use=use, **more)


@parallel([3, 4, 6, 8], mpi=[4], only=lambda given: given["use"] == "directed")
@pytest.mark.parametrize("use", ["directed", "undirected"])
def test_loss_logits_and_gradients_equal_the_dense_model(comm, use):
    for hosts in HOSTS[comm.size]:
        how = dict(scheme="two-tier", method="random", hosts=hosts)
        for model, sparse, norm in some(
            comm, (("wide", False, "gcn"), ("own", True, "gcn"), ("residual", False, "row"))
        ):
            trainer = gradients_are_the_dense_ones(comm, small_graph(use, sparse), model, norm, **how)
            plans = [stage.plan for stage in trainer.dgraph.A.stages]
            assert [isinstance(plan, RelayedPlan) for plan in plans] == ([False, True] if hosts > 1 else [False])
        graph = random_graph(n=60, edges=90, weighted=True, use=use, train_every=9)
        gradients_are_the_dense_ones(comm, graph, "wide", "gcn", prune="always", **how)


@parallel([4, 6], mpi=[4])
def test_a_product_and_its_adjoint(comm):
    A = distribute(small_graph(), comm, scheme="two-tier", method="random", hosts=2, dtype=torch.float64).A
    plan, generator = A.stages[1].plan, torch.Generator().manual_seed(comm.rank)
    x_nF = torch.randn(A.n, 5, dtype=torch.float64, generator=generator)
    y_rF = torch.randn(plan.read_rows, 5, dtype=torch.float64, generator=generator)
    before = y_rF.clone()
    both = torch.stack(
        [
            (plan.start_pull(x_nF).finish() * y_rF).sum(),
            (x_nF * plan.add(plan.start_push(y_rF).finish(), torch.zeros_like(x_nF))).sum(),
        ]
    ).numpy()
    comm.all_reduce(both)
    assert both[0] == pytest.approx(both[1], rel=1e-12) and torch.equal(y_rF, before)


@parallel([4, 6, 8], mpi=[4])
@pytest.mark.parametrize("prune", ["never", "always"])
def test_the_bytes_of_each_pair_of_ranks_are_the_predicted_ones(comm, prune):
    hosts = HOSTS[comm.size][-1]
    graph, widths = random_graph(n=60, edges=150, use="directed", train_every=3), (6, 9, 5, 3)
    part = part_graph(graph, comm.size, method="random")
    grid = grid_of(comm.size, 1, comm.size // hosts)
    train_N = (graph.split == 0) & (graph.y >= 0) if prune == "always" else None
    for wires in (("float32", "float32"), ("bfloat16", "float16")):
        names = dict(wire=wires[0], wire_gradients=wires[1], scheme="two-tier")
        report = once(
            ("two-tier", comm.size, prune, wires),
            lambda: measure(graph, part, replication=grid, widths=widths, itemsize=4, train_N=train_N, **names),
        )
        dgraph = distribute(graph, comm, part, hosts=hosts, **names)
        model = Stack(*[GCN(f, c, act="relu") for f, c in zip(widths, widths[1:])])
        train_and_compare(comm, report, dgraph, model, prune)


@parallel([4], mpi=[])
@pytest.mark.parametrize("layer", ["gat", "bfloat16"])
def test_layers_that_read_rows_fetch_them_flat_and_bfloat16_is_near(comm, layer):
    graph, how = small_graph(), dict(method="random", hosts=2)
    dtype = torch.bfloat16 if layer == "bfloat16" else torch.float64

    def trained(scheme):
        dgraph = distribute(graph, comm, scheme=scheme, dtype=dtype, **how)
        torch.manual_seed(1)
        model = Stack((GAT if layer == "gat" else GCN)(6, 8), GCN(8, 3)).to(
            torch.float32 if layer == "bfloat16" else dtype
        )
        Z = model(dgraph.A, dgraph.X)
        Z.float().square().sum().backward()
        return Z.detach().double(), next(model.parameters()).grad.double()

    for ours, flat in zip(trained("two-tier"), trained("columns")):
        assert torch.allclose(
            ours, flat, rtol=0, atol=(2e-2 if layer == "bfloat16" else 1e-10) * float(flat.abs().max())
        )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("P, hosts", [(4, 2), (6, 2), (8, 4), (5, 3), (6, 6)])
def test_rows_between_hosts_are_the_minimum_cover_of_each_pair_of_hosts(P, hosts, seed):
    rng = np.random.default_rng(seed)
    A = sp.csr_array(sp.random(50, 50, density=0.08, random_state=seed, format="csr"))
    owner_N, host_P = rng.integers(0, P, 50), host_of(P, hosts)
    rows_PP, moved_PP = two_tier_tables(A, owner_N, host_P)
    host_N = host_P[owner_N]
    for h in range(host_P[-1] + 1):
        for to in range(host_P[-1] + 1):
            crossing = rows_PP[np.ix_(host_P == h, host_P == to)]
            if h != to:
                block = sp.csr_matrix(A.toarray()[host_N == to][:, host_N == h])
                least = int((maximum_bipartite_matching(block) >= 0).sum()) if block.nnz else 0
                assert crossing.sum() == least
                assert max(crossing.sum(0).max(), crossing.sum(1).max()) <= -(-least // min(crossing.shape))
            assert h != to or not moved_PP[np.ix_(host_P == h, host_P == to)].any()


def test_on_one_host_and_in_15d_it_is_cover():
    graph = small_graph("undirected")
    part = part_graph(graph, 4, method="random")
    for grid in (grid_of(4, 1), grid_of(4, 2, 4)):
        ours, flat = (measure(graph, part, scheme, (6, 3, 3), grid) for scheme in ("two-tier", "cover"))
        assert np.array_equal(ours.bytes_PP(), flat.bytes_PP())


@parallel([4], mpi=[])
def test_flat_never_takes_it_and_explain_counts_what_crosses(comm):
    graph = small_graph("undirected")
    flat = distribute(graph, comm, scheme="flat", method="random", hosts=2)
    assert flat.scheme in ("cover", "columns") and "two-tier" not in flat.A.layout.why
    dgraph = distribute(graph, comm, scheme="two-tier", method="random", hosts=2)
    assert "two-tier" in distribute(graph, comm, method="random", hosts=2).A.layout.why  # auto compares it
    layers = explain(Stack(GCN(6, 8), GCN(8, 3)), dgraph).layers
    assert 0 < layers[1]["bytes_between_hosts"] < layers[1]["bytes_forward"] + layers[1]["bytes_backward"]
