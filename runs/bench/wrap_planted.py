"""What verify says of the modules of wrap_cases, and of differences planted in modules and in wrap itself.

For `runs/bench/wrap_table --only verify` and tests/exactness/test_verify_wrapped.py.
"""

import inspect
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import torch
from torch import nn
from wrap_cases import C, Case, F, convolutions, drawn, graph_of, mlp, models, reason_of


def verification(case: Case, kind: str):
    """Return what verify finds of a module on a graph of a kind, on 1, 2 and 3 ranks."""
    import spgnn

    return spgnn.verify(spgnn.wrap(drawn(case), call=case.call), graph_of(kind), (1, 2, 3), replication=1)


def false_alarms(kind: str, chosen: Callable[[str], bool] = lambda name: True) -> tuple[int, list[str]]:
    """Return how many of the modules of PyG that wrap takes were verified on a graph of a kind, and those found wrong.

    A module that itself refuses the attributes of the graph is not counted.
    """
    from spgnn.errors import UsageError

    count, wrong = 0, []
    for name, case in (convolutions() | models()).items():
        if not chosen(name) or reason_of(case) or (case.graph in ("edges", "types") and case.graph != kind):
            continue
        try:
            found = verification(case, kind)
        except UsageError as error:
            if kind == "edges" and "called as module(x, edge_index, edge_attr)" in str(error):
                continue
            raise
        count += 1
        wrong += [] if found.ok else [f"{name}, {kind}: {found.finding}"]
    return count, wrong


def is_found(name: str) -> str:
    """Return how a planted difference is found: verify, wrap (which refuses it), or "" where it is not."""
    from spgnn.errors import UsageError
    from spgnn.layers.foreign import ends, mended, on_ranks, pyg_kernels

    where = {
        "ends": ends.LocalEdges,
        "ranks": on_ranks.OnRanks,
        "mended": mended.MENDED,
        "kernels": pyg_kernels.KERNELS,
    }
    change = EDITS.get(name)
    case = Case(change[2], None, change[3]) if change else Case(partial(Planted, PLANTED[name]), None, "edges")
    try:
        with patched(where[change[0]], change[1]) if change else nullcontext():
            return "" if verification(case, case.graph).ok else "verify"
    except UsageError:
        return "wrap"


@contextmanager
def patched(owner, changes: dict):
    """Change attributes of a class, or entries of a dict; `flipped` is called with what is there."""
    get, put = (dict.__getitem__, dict.__setitem__) if isinstance(owner, dict) else (inspect.getattr_static, setattr)
    before = {name: get(owner, name) for name in changes}
    for name, value in changes.items():
        put(owner, name, value(before[name]) if value is flipped else value)
    try:
        yield
    finally:
        for name, value in before.items():
            put(owner, name, value)


class Planted(nn.Module):
    """What a function of x, edge_index and edge_attr returns, with modules and buffers that it may use."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function, self.lin, self.ids, self.slope = function, nn.Linear(F, F), nn.Embedding(30, F), nn.RReLU()
        self.rnn, self.conv = nn.GRU(F, F), nn.Conv1d(F, F, 3, padding=1)
        self.register_buffer("first", torch.zeros(F))

    def forward(self, x, edge_index, edge_attr):
        return self.function(self, self.lin(x), edge_index, edge_attr)


def summed(x, index, values=None):
    """Return the sum of x at sources, by values of edges."""
    rows = x[index[0]] if values is None else x[index[0]] * values
    return torch.zeros_like(x).index_add_(0, index[1], rows)


def remembered(m, x, index, attr):
    """Return x without a buffer that keeps the first row of a rank."""
    m.first = x[0].detach()
    return x - m.first


# What differs between ranks, or is not defined on a part of the rows: of modules.
PLANTED: dict[str, Callable] = {
    "softmax(0)": lambda m, x, index, attr: x.softmax(0),
    "log_softmax over nodes": lambda m, x, index, attr: torch.log_softmax(x, dim=0),
    "softmax of attributes": lambda m, x, index, attr: summed(x, index, attr.softmax(0)[:, :1]),
    "largest of all nodes": lambda m, x, index, attr: x / x.abs().max(),
    "largest of a column": lambda m, x, index, attr: x - x.max(0).values,
    "deviation of a column": lambda m, x, index, attr: x / x.std(0),
    "norm of a column": lambda m, x, index, attr: nn.functional.normalize(x, dim=0),
    "norm of all": lambda m, x, index, attr: x / x.norm(),
    "cumsum": lambda m, x, index, attr: x.cumsum(0),
    "sort": lambda m, x, index, attr: x.sort(0).values,
    "median": lambda m, x, index, attr: x - x.median(0).values,
    "attention of all nodes": lambda m, x, index, attr: torch.softmax(x @ x.t(), -1) @ x,
    "SDPA": lambda m, x, index, attr: nn.functional.scaled_dot_product_attention(x, x, x),
    "x.T x": lambda m, x, index, attr: x @ (x.T @ x),
    "a loss within": lambda m, x, index, attr: x * nn.functional.mse_loss(x, x.sin()),
    "rows as ids": lambda m, x, index, attr: x + m.ids(torch.arange(x.size(0))),
    "rows as positions": lambda m, x, index, attr: x + torch.linspace(0, 1, len(x))[:, None],
    "targets as ids": lambda m, x, index, attr: x + torch.zeros_like(x).index_add_(0, index[1], m.ids(index[1])),
    "targets as numbers": lambda m, x, index, attr: summed(x, index, index[1].to(x.dtype)[:, None]),
    "edge_index.max()": lambda m, x, index, attr: x / (index.max() + 1),
    "x.size(0)": lambda m, x, index, attr: x / x.size(0),
    "x.shape": lambda m, x, index, attr: x * x.shape[0] ** -0.5,
    "len(x)": lambda m, x, index, attr: x / len(x),
    "sources below targets": lambda m, x, index, attr: summed(x, index[:, index[0] < index[1]]),
    "edges of node 0": lambda m, x, index, attr: summed(x, index[:, index[0] == 0]),
    "first row": lambda m, x, index, attr: x - x[0],
    "first attribute": lambda m, x, index, attr: x * attr[0, 0],
    "the row before": lambda m, x, index, attr: x + torch.cat([x[-1:], x[:-1]]),
    "recurrent over nodes": lambda m, x, index, attr: m.rnn(x)[0],
    "Conv1d over nodes": lambda m, x, index, attr: m.conv(x.t()[None])[0].t(),
    "RReLU": lambda m, x, index, attr: m.slope(x),
    "noise": lambda m, x, index, attr: x + torch.randn_like(x),
    "a buffer of a rank": remembered,
}  # fmt: skip


def flipped(made_of: classmethod) -> classmethod:
    """Return what makes the edges of a rank in the other direction."""
    from spgnn.layers.foreign.ends import SOURCE, TARGET, ends, plain

    def of(cls, A, dtype):
        made = made_of.__func__(cls, A, dtype)
        return replace(made, index=ends(plain(made.index).flip(0), SOURCE, TARGET))

    return classmethod(of)


def conv_of(name: str, *args, **kwargs) -> Callable:
    """Return what makes a module of PyG from F to C columns."""

    def made() -> nn.Module:
        import torch_geometric.nn as g

        return getattr(g, name)(*(args or (F, C)), **kwargs)

    return made


# And of wrap itself: what is changed, how, and the module and graph that show it.
EDITS: dict[str, tuple] = {
    "GCN without loops": (
        "kernels", {"GCNConv": lambda conv, on, x: on.A @ conv.lin(x) + conv.bias}, conv_of("GCNConv"), "plain"),
    "GCN without its weights": (
        "kernels", {"GCNConv": lambda conv, on, x: type(conv).forward(conv, x, on.edges.index)}, conv_of("GCNConv"), "weights"),
    "GIN by weights": (
        "kernels", {"GINConv": lambda conv, on, x: conv.nn(on.A @ x + x)}, conv_of("GINConv", mlp(F, C)), "weights"),
    "GIN without itself": ("kernels", {"GINConv": lambda conv, on, x: conv.nn(on.A @ x)}, conv_of("GINConv", mlp(F, C)), "plain"),
    "SAGE of sums": (
        "kernels", {"SAGEConv": lambda conv, on, x: conv.lin_l(on.A @ x) + conv.lin_r(x)}, conv_of("SAGEConv"), "plain"),
    "GAT without attention": (
        "kernels", {"GATConv": lambda conv, on, x: on.A @ conv.lin(x) + conv.bias}, conv_of("GATConv"), "plain"),
    "ghosts of 0": (
        "ranks", {"table": lambda on, H, dim, A=None: torch.cat([H, H.new_zeros(len(on.A.column_ids) - len(H), *H.shape[1:])])},
        conv_of("GraphConv"), "plain"),
    "sums that do not reach their owners": (
        "ranks", {"at_owners": lambda on, T, dim, A: T.narrow(dim, 0, on.A.m)}, conv_of("GCNConv", flow="target_to_source"), "plain"),
    "BatchNorm of a rank": (
        "mended", {nn.functional.batch_norm: lambda on, *args, **kwargs: nn.functional.batch_norm(*args, **kwargs)},
        conv_of("GCN", F, 8, 2, C, norm="BatchNorm"), "plain"),
    "dropout by torch": (
        "mended", {nn.functional.dropout: lambda on, *args, **kwargs: nn.functional.dropout(*args, **kwargs)},
        conv_of("GCN", F, 8, 2, C, dropout=0.5), "plain"),
    "the other direction": ("ends", {"of": flipped}, conv_of("GraphConv"), "plain"),
    "attributes of other edges": (
        "ends", {"attributes": lambda edges, operator: operator.edge_attr.flip(0)}, conv_of("GATConv", edge_dim=3), "edges"),
}  # fmt: skip
