"""RGAT and HGT have the rows and gradients of PyG's convolutions with the same weights, in float64."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from models import normal
from test_relation_layers import DST, ENDS, GRAPH, NAMES, REL, RNG, SRC, STARTS, F, N, R, X, messages

import spgnn
from spgnn.data import by_type
from spgnn.dist.thread import run_threads
from spgnn.distgraph import distribute
from spgnn.errors import UsageError
from spgnn.layers import HGT, RGAT, Stack

pyg = pytest.importorskip("torch_geometric.nn")
EDGES, RELATION = torch.from_numpy(np.stack([SRC, DST])), torch.from_numpy(REL)
H = torch.from_numpy(X)


def heads_last(W, K):
    """Columns h D + d of PyG as d K + h."""
    return W.view(*W.shape[:-1], K, -1).transpose(-1, -2).reshape(W.shape)


def copied(layer, weights):
    """The layer with these weights."""
    with torch.no_grad():
        for name, value in weights.items():
            getattr(layer, name).copy_(value)
    return layer


def rgat(theirs):
    q, k = (heads_last(W.t(), 2).t() for W in (theirs.q, theirs.k))
    given = {"W_RFC": heads_last(theirs.weight, 2), "q_CK": q, "k_CK": k, "b_C": heads_last(theirs.bias, 2)}
    return copied(RGAT(F, 6, R, heads=2).double(), given)


def rows_on_ranks(make, size):
    """Rows of the layer and gradients of its weights, on several ranks, against the sum of squares."""

    def body(comm):
        dgraph = distribute(GRAPH.with_edges("reversed"), comm, method="random", operator="none", dtype="float64")
        layer = make()
        out = layer(dgraph.A, dgraph.X)
        out.square().sum().backward()
        found = {}
        for name, weight in layer.named_parameters():
            found[name] = weight.grad.numpy().copy()
            comm.all_reduce(found[name])
        return dgraph.collect(out.detach().numpy()), found

    return run_threads(size, body)[0]


@pytest.mark.parametrize("size", [1, 3])
def test_rgat_has_the_rows_and_gradients_of_pygs(size):
    torch.manual_seed(0)
    theirs = pyg.RGATConv(F, 3, R, heads=2).double()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(torch.rand_like(weight), alpha=0.3)
    expected = theirs(H, EDGES, RELATION)
    expected.square().sum().backward()
    found, gradients = rows_on_ranks(lambda: rgat(theirs), size)
    expected, bias = (heads_last(of, 2).numpy() for of in (expected.detach(), theirs.bias.grad))
    assert np.abs(found - expected).max() <= 1e-10 * np.abs(expected).max()
    assert np.abs(gradients["b_C"] - bias).max() <= 1e-10 * np.abs(bias).max()


@pytest.mark.parametrize("size", [1, 3])
def test_hgt_has_the_rows_of_pygs(size):
    torch.manual_seed(0)
    K, types = 2, ["a", "b", "c"]
    relations = [tuple(name.split(" ")) for name in NAMES]
    theirs = pyg.HGTConv(F, 6, (types, relations), heads=K).double()
    x = {name: H[first:last] for name, first, last in zip(types, STARTS, STARTS[1:])}
    with torch.no_grad():
        theirs.kqv_lin(dict(x))  # makes lazy weights
        for weight in theirs.parameters():
            weight.add_(torch.rand_like(weight), alpha=0.3)
    start = np.array(STARTS)
    edge_index = {
        key: torch.from_numpy(np.stack([SRC[REL == r] - start[s], DST[REL == r] - start[t]]))
        for r, (key, (s, t)) in enumerate(zip(relations, ENDS))
    }
    out = theirs(x, edge_index)
    expected = torch.cat([heads_last(out[name], 1) for name in types]).detach().numpy()

    def ours():
        W = torch.stack([theirs.kqv_lin.lins[name].weight.t() for name in types])
        b = torch.stack([theirs.kqv_lin.lins[name].bias for name in types])
        k, q, v = (heads_last(part, K) for part in W.chunk(3, -1))
        b_k, b_q, b_v = (heads_last(part, K) for part in b.chunk(3, -1))
        O = torch.stack([theirs.out_lin.lins[name].weight.t() for name in types])
        rows = torch.arange(6).view(K, -1).t().reshape(-1)  # O reads heads last
        given = {
            "Q": q, "K": k, "V": v, "b_Q": b_q, "b_K": b_k, "b_V": b_v, "O": O[:, rows],
            "b_O": torch.stack([theirs.out_lin.lins[name].bias for name in types]),
            "A_r": theirs.k_rel.weight.view(K, R, 3, 3).transpose(0, 1),
            "M_r": theirs.v_rel.weight.view(K, R, 3, 3).transpose(0, 1),
            "mu": torch.cat([theirs.p_rel["__".join(key)] for key in relations]),
            "skip": torch.stack([theirs.skip[name].view(()) for name in types]),
        }  # fmt: skip
        return copied(HGT(F, 6, R, 3, heads=K).double(), given)

    found, _ = rows_on_ranks(ours, size)
    assert np.abs(found - expected).max() <= 1e-10 * np.abs(expected).max()
    assert len(found) == N


CONVS = {
    "full": lambda R: pyg.RGCNConv(F, 6, R),
    "bases": lambda R: pyg.RGCNConv(F, 6, R + 1, num_bases=2, aggr="add", bias=False),
    "blocks": lambda R: pyg.RGCNConv(F, 6, R, num_blocks=3, root_weight=False),
    "fast": lambda R: pyg.FastRGCNConv(F, 6, R, num_bases=2),
    "max": lambda R: pyg.RGCNConv(F, 6, R, aggr="max"),
    "rgat": lambda R: pyg.RGATConv(F, 3, R, heads=2, num_bases=2),
    "film": lambda R: pyg.FiLMConv(F, 6, R),
    "two layers": lambda R: pyg.Sequential("x, edge_index, edge_type", [
        (pyg.RGCNConv(F, 8, R), "x, edge_index, edge_type -> x"), torch.nn.ELU(),
        (pyg.RGATConv(8, 6, R), "x, edge_index, edge_type -> x")]),
}  # fmt: skip


def wrapped(module, dgraph, X_nF):
    """Rows of all nodes, their gradient, and the gradients of weights of a module on the ranks of a graph."""
    Z, comm = spgnn.wrap(module)(dgraph.A, X_nF.requires_grad_()), dgraph.comm
    Z.sin().sum().backward()
    gradients = [np.zeros(W.shape) if W.grad is None else W.grad.numpy() for W in module.parameters()]
    return [dgraph.collect(T.numpy()) for T in (Z.detach(), X_nF.grad)] + [comm.all_reduce(G) for G in gradients]


def compared(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        b = np.zeros_like(a) if b is None else b.detach().numpy()
        assert np.abs(a - b).max() <= 1e-10 * max(1, np.abs(b).max())


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("use", ["undirected", "directed"])
@pytest.mark.parametrize("name", CONVS)
def test_a_wrapped_convolution_reads_the_relations_of_the_graph(name, use, size):
    row, column, relation, n_relations = messages(use)
    module, X_NF, passes = normal(CONVS[name](n_relations)), H.clone().requires_grad_(), []
    Z = module(X_NF, torch.from_numpy(np.stack([column, row])), torch.from_numpy(relation))
    Z.sin().sum().backward()

    def body(comm):
        dgraph = distribute(GRAPH.with_edges(use), comm, method="random", dtype="float64", keep=False)
        of = normal(CONVS[name](n_relations))
        if type(of).__name__ in ("RGCNConv", "FastRGCNConv") and name != "max":
            of.register_propagate_forward_pre_hook(lambda *_: passes.append(name))
        return wrapped(of, dgraph, dgraph.X.clone())

    compared(run_threads(size, body)[0], [Z, X_NF.grad, *(W.grad for W in module.parameters())])
    assert not passes  # on the kernel of typed_sum


def test_a_wrapped_convolution_of_fewer_relations_is_refused_and_verify_knows_them():
    dgraph = distribute(GRAPH, dtype="float64")
    with pytest.raises(UsageError, match="edges have 10 relations, and FiLMConv was made with num_relations=5"):
        spgnn.wrap(pyg.FiLMConv(F, 4, 5).double())(dgraph.A, dgraph.X)
    assert spgnn.verify(spgnn.wrap(CONVS["two layers"](2 * R)), GRAPH, ranks=(1, 2)).ok


TYPES, TRIPLES = ["a", "b", "c"], [tuple(name.split(" ")) for name in NAMES]
BOTH = TRIPLES + [(t, "rev_" + r, s) for s, r, t in TRIPLES]
WIDTHS = {"a": 3, "b": 1, "c": 5}  # b has no features
FIRST, SIZES = dict(zip(TYPES, STARTS)), dict(zip(TYPES, np.diff(STARTS)))
X_DICT = {name: torch.from_numpy(RNG.normal(size=(n, WIDTHS[name]))) for name, n in SIZES.items()}
X_DICT["b"] = torch.ones(SIZES["b"], 1, dtype=torch.float64)


class Net(torch.nn.Module):
    """Two layers by types, with dropout of rate 0, norms and a mean over a type between them."""

    def __init__(self, relations, last):
        super().__init__()
        convs = {key: pyg.SAGEConv((WIDTHS[key[0]], WIDTHS[key[2]]), 4, aggr=["mean", "max"]) for key in relations}
        convs |= {("a", "r0", "b"): pyg.GATConv((3, 1), 4, add_self_loops=False)}
        convs |= {key: pyg.GCNConv(WIDTHS[key[0]], 4) for key in relations if key[0] == key[2]}
        self.first, self.last = pyg.HeteroConv(convs, "sum"), last(relations)
        self.norms = torch.nn.ModuleDict({name: pyg.GraphNorm(4) for name in TYPES})
        self.batch = torch.nn.BatchNorm1d(4)

    def forward(self, x_dict, edge_index_dict):
        H = {name: self.norms[name](x.relu()) for name, x in self.first(x_dict, edge_index_dict).items()}
        H["a"] = self.batch(torch.nn.functional.dropout(H["a"], 0.0)) + H["a"].mean(0)
        return self.last(H, edge_index_dict)


NETS = {
    "hetero": lambda of: pyg.HeteroConv({key: pyg.SAGEConv((WIDTHS[key[0]], WIDTHS[key[2]]), 4) for key in of}, "mean"),
    "hgt": lambda of: pyg.HGTConv(WIDTHS, 6, (TYPES, of), heads=2),
    "two hgt": lambda of: Net(of, lambda of: pyg.HGTConv(4, 4, (TYPES, of), heads=2)),
    "two hetero": lambda of: Net(of, lambda of: pyg.HeteroConv({key: pyg.GATv2Conv((4, 4), 3, add_self_loops=False) for key in of})),
}  # fmt: skip


def typed_graph(use):
    ends = {key: np.stack([SRC[REL == r] - FIRST[key[0]], DST[REL == r] - FIRST[key[2]]]) for r, key in enumerate(TRIPLES)}  # fmt: skip
    of = {name: {"X": X_DICT[name].numpy()} if name != "b" else {} for name in TYPES}
    return by_type.typed_graph(SIZES, of, ends).with_edges(use), ends


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("use", ["undirected", "reversed"])
@pytest.mark.parametrize("name", NETS)
def test_modules_on_dicts_of_types_are_exact(name, use, size):
    graph, ends = typed_graph(use)
    index = {key: torch.from_numpy(of) for key, of in ends.items()}
    index |= {(t, "rev_" + r, s): index[s, r, t].flip(0) for s, r, t in TRIPLES} if use == "undirected" else {}

    module, X = normal(NETS[name](list(index))), {key: rows.clone().requires_grad_() for key, rows in X_DICT.items()}
    out = module(X, index)
    sum(Z.sin().sum() for Z in out.values() if Z is not None).backward()
    width = next(Z for Z in out.values() if Z is not None).shape[1]
    expected = torch.cat([torch.zeros(n, width) if out.get(key) is None else out[key] for key, n in SIZES.items()])

    def body(comm):
        dgraph = distribute(graph, comm, method="random", dtype="float64")
        return wrapped(normal(NETS[name](list(index))), dgraph, dgraph.X.dense().clone())

    X_grad = torch.block_diag(*(rows.grad for rows in X.values()))
    compared(run_threads(size, body)[0], [expected, X_grad, *(W.grad for W in module.parameters())])


class Loops(pyg.GATConv):
    def forward(self, x_dict, edge_index_dict):
        return {"b": super().forward((x_dict["a"], x_dict["b"]), edge_index_dict["a", "r0", "b"])}


REFUSED = {
    r"HeteroConv has a convolution for \('a', 'r9', 'b'\), which": lambda: pyg.HeteroConv({("a", "r9", "b"): pyg.SAGEConv((3, 1), 4)}),
    r"the graph has relation \('b', 'rev_r0', 'a'\), which HGTConv has not": lambda: NETS["hgt"](TRIPLES),
    "self-loops between nodes of two types: give add_self_loops=False": lambda: Loops((3, 1), 4),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_dicts_of_types_lack_is_refused(message):
    dgraph = distribute(typed_graph("undirected")[0], dtype="float64")
    with pytest.raises(UsageError, match=message):
        spgnn.wrap(REFUSED[message]().double())(dgraph.A, dgraph.X)
    untyped = distribute(spgnn.graph_from_coo(SRC, DST, N, X=X), dtype="float64")
    with pytest.raises(UsageError, match="a distributed graph with relations of its edges"):
        spgnn.wrap(NETS["hgt"](BOTH).double())(untyped.A, untyped.X)


def test_layers_by_types_follow_each_other_train_alike_on_ranks_and_are_verified():
    torch.manual_seed(0)
    graph = replace(typed_graph("undirected")[0], y=np.arange(N) % 4, split=(np.arange(N) % 3 == 0).astype(np.int8))
    second = pyg.HeteroConv({key: pyg.GATConv((6, 6), 9, dropout=0.4, add_self_loops=False) for key in BOTH})
    first, last = spgnn.wrap(NETS["hgt"](BOTH)), torch.nn.Linear(9, 4)  # 9 columns, as many as X has
    model = Stack(first, torch.nn.ReLU(), spgnn.wrap(second), last, dropout=0.3)

    def losses(comm):
        dgraph = distribute(graph, comm, method="random", dtype="float64")
        return [record["loss"] for record in spgnn.train(deepcopy(model), dgraph, epochs=3, split="given").records]

    alone, *others = (run_threads(size, losses)[0] for size in (1, 2, 7))
    assert others == [pytest.approx(alone, rel=1e-10)] * 2
    assert spgnn.verify(model, graph, ranks=(1, 2)).ok
