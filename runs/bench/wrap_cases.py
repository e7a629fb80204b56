"""Convolutions and models of PyG for runs/bench/wrap_table and tests/layers/test_wrap_pyg.py, which spgnn.wrap runs.

Features have F = 6 columns; edges, where a case reads them, 3: two numbers and a type of 0, 1 or 2.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

F, C, A_NODES = 6, 4, 12


@dataclass(frozen=True)
class Case:
    """A module; how it is called, where its forward takes more than x, edge_index, edge_weight, edge_attr and batch.

    graph  plain; weights: of its edges; edges: with attributes, a multigraph; types: 12 nodes of type a, others of b.
    """

    make: Callable[[], nn.Module]
    call: Callable | None = None
    graph: str = "plain"


def mlp(f: int, c: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(f, 8), nn.ReLU(), nn.Linear(8, c))


def typed(module, graph, x):
    return module(x, graph.edge_index, graph.edge_attr[:, 2].long())


def with_pair(module, graph, x):
    return module(x, graph.edge_index, graph.edge_attr[:, :2])


def positioned(module, graph, x):
    return module(x, x[:, :3], graph.edge_index)


def of_types(module, graph, x):
    if hasattr(graph, "x_dict"):
        return module(graph.x_dict, graph.edge_index_dict)
    (source, target), is_b = graph.edge_index, lambda ends: ends >= A_NODES
    index = {("a", "to", "b"): ~is_b(source) & is_b(target), ("b", "to", "a"): is_b(source) & ~is_b(target)}
    index |= {("b", "by", "b"): is_b(source) & is_b(target)}
    first = {"a": 0, "b": A_NODES}
    index = {key: torch.stack([source[of] - first[key[0]], target[of] - first[key[2]]]) for key, of in index.items()}
    out = module({"a": x[:A_NODES], "b": x[A_NODES:]}, index)
    return torch.cat([out["a"], out["b"]])


def convolutions() -> dict[str, Case]:
    """Return the convolutions of PyG by name, some with several settings."""
    import torch_geometric.nn as g

    degrees = torch.tensor([3, 5, 8, 6, 4, 2, 1, 1])
    signed = lambda module, graph, x: module(
        x, graph.edge_index[:, graph.edge_attr[:, 0] > 0], graph.edge_index[:, graph.edge_attr[:, 0] <= 0]
    )
    heat = lambda module, graph, x: module(
        x, graph.edge_index, (x[:, 0] > 0).long(), graph.edge_attr[:, 2].long(), graph.edge_attr[:, :2]
    )
    metadata = (["a", "b"], [("a", "to", "b"), ("b", "to", "a"), ("b", "by", "b")])
    plain = {
        "SimpleConv": lambda: g.SimpleConv("mean", combine_root="cat"),
        "GCNConv": lambda: g.GCNConv(F, C),
        "GCNConv, cached": lambda: g.GCNConv(F, C, cached=True),
        "GCNConv, improved": lambda: g.GCNConv(F, C, improved=True),
        "GCNConv, to sources": lambda: g.GCNConv(F, C, flow="target_to_source"),
        "ChebConv": lambda: g.ChebConv(F, C, 3),
        "SAGEConv": lambda: g.SAGEConv(F, C),
        "SAGEConv, max": lambda: g.SAGEConv(F, C, "max", project=True),
        "SAGEConv, six aggregators": lambda: g.SAGEConv(F, C, ["mean", "max", "std", "softmax", "var", "powermean"]),
        "SAGEConv, lstm": lambda: g.SAGEConv(F, C, "lstm"),
        "SAGEConv, to sources": lambda: g.SAGEConv(F, C, flow="target_to_source", normalize=True),
        "CuGraphSAGEConv": lambda: g.CuGraphSAGEConv(F, C),
        "GraphConv": lambda: g.GraphConv(F, C),
        "GatedGraphConv": lambda: g.GatedGraphConv(F, 3),
        "ResGatedGraphConv": lambda: g.ResGatedGraphConv(F, C),
        "GATConv": lambda: g.GATConv(F, C, 2),
        "GATConv, mean and residual": lambda: g.GATConv(F, C, 3, concat=False, residual=True),
        "FusedGATConv": lambda: g.FusedGATConv(F, C, 2),
        "CuGraphGATConv": lambda: g.CuGraphGATConv(F, C),
        "GATv2Conv": lambda: g.GATv2Conv(F, C, 2),
        "GATv2Conv, shared": lambda: g.GATv2Conv(F, C, 2, share_weights=True, concat=False),
        "TransformerConv": lambda: g.TransformerConv(F, C, 2),
        "AGNNConv": lambda: g.AGNNConv(),
        "TAGConv": lambda: g.TAGConv(F, C),
        "GINConv": lambda: g.GINConv(mlp(F, C), train_eps=True),
        "ARMAConv": lambda: g.ARMAConv(F, C, 2, 2),
        "SGConv": lambda: g.SGConv(F, C, 2, cached=True),
        "SSGConv": lambda: g.SSGConv(F, C, 0.1, 2),
        "APPNP": lambda: g.APPNP(3, 0.1),
        "MFConv": lambda: g.MFConv(F, C),
        "EdgeConv": lambda: g.EdgeConv(mlp(2 * F, C)),
        "DynamicEdgeConv": lambda: g.DynamicEdgeConv(mlp(2 * F, C), 3),
        "XConv": lambda: g.XConv(F, C, 3, 3),
        "FeaStConv": lambda: g.FeaStConv(F, C, 2),
        "HypergraphConv": lambda: g.HypergraphConv(F, C),
        "LEConv": lambda: g.LEConv(F, C),
        "PNAConv": lambda: g.PNAConv(
            F, C, ["mean", "max", "std"], ["identity", "amplification", "attenuation"], degrees
        ),
        "ClusterGCNConv": lambda: g.ClusterGCNConv(F, C),
        "GENConv": lambda: g.GENConv(F, C),
        "PANConv": lambda: g.PANConv(F, C, 2),
        "WLConv": lambda: g.WLConv(),
        "WLConvContinuous": lambda: g.WLConvContinuous(),
        "FiLMConv": lambda: g.FiLMConv(F, C),
        "SuperGATConv": lambda: g.SuperGATConv(F, C, 2),
        "EGConv": lambda: g.EGConv(F, C, ["sum", "symnorm", "mean", "std"], 2, 2),
        "GeneralConv": lambda: g.GeneralConv(F, C),
        "HANConv": lambda: g.HANConv(F, C, metadata),
        "LGConv": lambda: g.LGConv(),
        "GPSConv": lambda: g.GPSConv(F, g.GCNConv(F, F), 2),
        "AntiSymmetricConv": lambda: g.AntiSymmetricConv(F),
        "DirGNNConv": lambda: g.DirGNNConv(g.SAGEConv(F, C)),
        "MixHopConv": lambda: g.MixHopConv(F, C),
        "MeshCNNConv": lambda: g.MeshCNNConv(F, C),
        "GravNetConv": lambda: g.GravNetConv(F, C, 2, 3, 3),
    }
    weighted = ("GCNConv", "GCNConv, improved", "ChebConv", "GraphConv", "TAGConv", "SAGEConv", "GINConv", "GATConv")
    return {name: Case(make) for name, make in plain.items()} | {
        **{f"{name}, weights": Case(plain[name], None, "weights") for name in weighted},
        "DNAConv": Case(lambda: g.DNAConv(F), lambda m, graph, x: m(torch.stack([x, x.sin()], 1), graph.edge_index)),
        "PointNetConv": Case(
            lambda: g.PointNetConv(mlp(F, C), mlp(C, C)), lambda m, graph, x: m(x[:, :3], x[:, 3:], graph.edge_index)
        ),
        "PPFConv": Case(
            lambda: g.PPFConv(mlp(F + 1, C)), lambda m, graph, x: m(x[:, :3], x[:, 3:], x[:, 1:4], graph.edge_index)
        ),
        "PointTransformerConv": Case(lambda: g.PointTransformerConv(F, C), positioned),
        "PointGNNConv": Case(lambda: g.PointGNNConv(mlp(F, 3), mlp(F + 3, C), mlp(C, F)), positioned),
        "GCN2Conv": Case(lambda: g.GCN2Conv(F, 0.1, 0.5, 1), lambda m, graph, x: m(x, x.sin(), graph.edge_index)),
        "FAConv": Case(lambda: g.FAConv(F), lambda m, graph, x: m(x, x.sin(), graph.edge_index)),
        "GINEConv": Case(lambda: g.GINEConv(mlp(F, C), edge_dim=3), None, "edges"),
        "GATConv, edges": Case(lambda: g.GATConv(F, C, 2, edge_dim=3), None, "edges"),
        "GATv2Conv, edges": Case(lambda: g.GATv2Conv(F, C, 2, edge_dim=3), None, "edges"),
        "TransformerConv, edges": Case(lambda: g.TransformerConv(F, C, 2, edge_dim=3, beta=True), None, "edges"),
        "GCNConv on a multigraph": Case(lambda: g.GCNConv(F, C), None, "edges"),
        "NNConv": Case(lambda: g.NNConv(F, C, mlp(2, F * C)), with_pair, "edges"),
        "CGConv": Case(lambda: g.CGConv(F, 2, batch_norm=True), with_pair, "edges"),
        "GMMConv": Case(lambda: g.GMMConv(F, C, 2, 2), with_pair, "edges"),
        "SplineConv": Case(lambda: g.SplineConv(F, C, 2, 3), with_pair, "edges"),
        "PDNConv": Case(lambda: g.PDNConv(F, C, 2, 5), with_pair, "edges"),
        "RGCNConv": Case(lambda: g.RGCNConv(F, C, 3), typed, "edges"),
        "FastRGCNConv": Case(lambda: g.FastRGCNConv(F, C, 3), typed, "edges"),
        "CuGraphRGCNConv": Case(lambda: g.CuGraphRGCNConv(F, C, 3), typed, "edges"),
        "RGATConv": Case(lambda: g.RGATConv(F, C, 3), typed, "edges"),
        "SignedConv": Case(lambda: g.SignedConv(F, C, True), signed, "edges"),
        "HGTConv": Case(lambda: g.HGTConv(F, C, metadata, 2), of_types, "types"),
        "HeteroConv": Case(lambda: g.HeteroConv({key: g.SAGEConv(F, C) for key in metadata[1]}), of_types, "types"),
        "HEATConv": Case(lambda: g.HEATConv(F, C, 2, 3, 3, 2, 3), heat, "edges"),
    }


def models() -> dict[str, Case]:
    """Return models of PyG, with its norms and jumping knowledge."""
    import torch_geometric.nn as g

    degrees = torch.tensor([3, 5, 8, 6, 4, 2, 1, 1])
    pna = {"aggregators": ["mean", "max"], "scalers": ["identity", "linear"], "deg": degrees}
    made = {
        "GCN, BatchNorm, cat": lambda: g.GCN(F, 8, 3, C, norm="BatchNorm", jk="cat"),
        "GraphSAGE, GraphNorm, lstm": lambda: g.GraphSAGE(F, 8, 3, C, norm="GraphNorm", jk="lstm"),
        "GIN, PairNorm": lambda: g.GIN(F, 8, 3, C, norm="PairNorm"),
        "GAT, InstanceNorm, max": lambda: g.GAT(F, 8, 3, C, heads=2, norm="InstanceNorm", jk="max"),
        "GAT v2, LayerNorm": lambda: g.GAT(F, 8, 3, C, heads=2, v2=True, norm="LayerNorm"),
        "PNA, DiffGroupNorm": lambda: g.PNA(F, 8, 2, C, norm="DiffGroupNorm", norm_kwargs={"groups": 3}, **pna),
        "EdgeCNN": lambda: g.EdgeCNN(F, 8, 2, C),
        "Sequential": lambda: g.Sequential(
            "x, edge_index",
            [(g.GCNConv(F, 8), "x, edge_index -> h"), nn.ELU(), (g.SAGEConv(8, C), "h, edge_index -> h")],
        ),
    }
    return {name: Case(make) for name, make in made.items()}


@dataclass(frozen=True)
class WholeGraph:
    """What a module of PyG is called with in one process: the attributes of a LocalGraph."""

    edge_index: torch.Tensor
    edge_attr: torch.Tensor | None
    num_nodes: int


def graph_of(kind: str, seed: int = 0):
    """Return a directed graph with an isolated node and self-loops; see Case.graph."""
    import spgnn

    rng, n, count = np.random.default_rng(seed), 30, 100
    source, target = rng.integers(0, n - 1, (2, count))
    more = {"y": rng.integers(0, C, n), "split": np.zeros(n, np.int8)}
    if kind == "weights":
        more |= {"weights": rng.random(count) + 0.5, "duplicates": "max"}
    if kind == "edges":
        more["edge_attr"] = np.column_stack([rng.standard_normal((count, 2)), rng.integers(0, 3, count)])
    if kind == "types":
        is_between = (source >= A_NODES) | (target >= A_NODES)
        source, target = source[is_between], target[is_between]
        more["edge_y"] = np.select([source < A_NODES, target < A_NODES], [0, 1], 2)
        more["edge_classes"] = ("a to b", "b to a", "b by b")
        more["meta"] = {"node_types": {"names": ["a", "b"], "starts": [0, A_NODES, n]}, "typed": True}
    graph = spgnn.graph_from_coo(source, target, n, X=rng.standard_normal((n, F)), **more)
    return graph.with_edges("reversed" if kind == "types" else "directed")


def drawn(case: Case) -> nn.Module:
    """Return the module of a case with weights of a seed, in float64."""
    module, generator = case.make().double(), torch.Generator().manual_seed(3)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    return module.train()


def loss_of(Z: torch.Tensor, node_n: torch.Tensor) -> torch.Tensor:
    """Return a sum over nodes in which each entry has a factor of its own."""
    factors = torch.cos(node_n.double()[:, None] * 0.9 + torch.arange(Z.shape[1]).double() * 1.7)
    return (Z * factors + 0.3 * Z.square()).sum()


def by_pyg(case: Case, graph) -> list:
    """Return output, loss, and gradients of X and weights of PyG itself."""
    module, A = drawn(case), graph.A
    row_E = np.repeat(np.arange(graph.n_nodes), np.diff(A.indptr))
    index = torch.from_numpy(np.stack([A.indices, row_E]).astype(np.int64))
    weights = torch.from_numpy(A.data).double() if case.graph == "weights" else None
    attributes = None if graph.edge_attr is None else torch.from_numpy(graph.edge_attr).double()
    whole, X = (
        WholeGraph(index, attributes, graph.n_nodes),
        torch.tensor(graph.X, dtype=torch.float64, requires_grad=True),
    )
    if case.call:
        Z = case.call(module, whole, X)
    else:
        of_graph = {"edge_attr": attributes, "edge_weight": weights}
        taken = inspect.signature(module.forward).parameters
        named = {name: value for name, value in of_graph.items() if name in taken and value is not None}
        Z = module(X, index, **named)
    loss = loss_of(Z, torch.arange(graph.n_nodes))
    loss.backward()
    return [Z.detach().numpy(), loss.item(), X.grad.numpy(), *(p.grad for p in module.parameters())]


def by_wrap(case: Case, graph, comm) -> list:
    """Return the same of spgnn.wrap, over all ranks."""
    import spgnn

    model = spgnn.wrap(drawn(case), call=case.call)
    dgraph = spgnn.distribute(graph, comm, dtype="float64", method="random", keep=False)
    X = dgraph.X.clone().requires_grad_()
    Z = model(dgraph.A, X)
    loss = loss_of(Z, torch.from_numpy(dgraph.A.node_n))
    loss.backward()
    total = comm.all_reduce(np.array([loss.item()]))[0]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]
    return [dgraph.collect(Z.detach().numpy()), total, dgraph.collect(X.grad.numpy()), *map(comm.all_reduce, gradients)]


def largest_error(case: Case, ranks: int) -> float:
    """Return the largest difference from PyG, relative to the largest entry of each array, or to 1.

    Raises: ImportError where PyG needs another library; UsageError where wrap refuses the module.
    """
    from spgnn.dist import run_threads

    graph = graph_of(case.graph)
    expected = by_pyg(case, graph)
    found = run_threads(ranks, lambda comm: by_wrap(case, graph, comm))[0]
    errors = [0.0]
    for got, of_pyg in zip(found, expected, strict=True):
        got, of_pyg = np.asarray(got), np.zeros_like(got) if of_pyg is None else np.asarray(of_pyg)
        errors.append(float(np.abs(got - of_pyg).max(initial=0)) / max(1.0, float(np.abs(of_pyg).max(initial=0))))
    return max(errors)


def reason_of(case: Case) -> str:
    """Return why a module is not wrapped: what wrap says of it, or that PyG itself cannot make it here; "" where it is."""
    import spgnn
    from spgnn.errors import UsageError

    try:
        spgnn.wrap(case.make())
    except UsageError as error:
        return str(error)
    except (ImportError, ValueError) as error:
        return f"PyG cannot make it here: {error}"
    return ""


def outcome(case: Case, ranks: tuple[int, ...]) -> tuple[float | None, str]:
    """Return the largest error over numbers of ranks and "", or None and the reason why a module is refused."""
    reason = reason_of(case)
    return (None, reason) if reason else (max(largest_error(case, P) for P in ranks), "")
