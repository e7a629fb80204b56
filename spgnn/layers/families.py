"""The Stacks that options describe: a function for each built-in family, by its name in registry.FAMILIES.

A layer of a family is called as layer(f, c, act=, bias=, norm=, residual=) where it is a hidden one, and with bias alone
where it is the last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from ..errors import UsageError
from .convolutions import GAT, GCN, GIN, SAGE
from .dense import MLP, NGNN
from .edge_layers import GINE, PNA, EdgeDecoder, EdgeEncoder, EdgeMLP, GatedGCN, Transformer
from .propagation import APPNP, GCNII, SGC, LightGCN, MixHop
from .relation_layers import HGT, RGAT, RGCN
from .stack import JOINED_WIDTH, Stack

BASES = 30


def make_stack(
    f_in: int,
    n_out: int,
    options,
    hidden: Callable[..., nn.Module],
    last: Callable[..., nn.Module],
    *after: nn.Module,
) -> Stack:
    """Return F -> hidden ... -> C, options.layers layers, of which `hidden` makes all but the last, and what comes after.

    With options.classifier all of them are hidden ones, and an MLP of one product follows.
    Args: options  the model options of a TrainConfig.
    """
    norm = None if options.norm == "none" else options.norm
    end = {"act": options.act, "bias": options.bias, "norm": norm, "residual": options.residual}
    count = options.layers if options.classifier else options.layers - 1
    widths = [f_in] + [options.hidden] * count
    layers = [hidden(f, c, **end) for f, c in zip(widths, widths[1:])]
    jump = None if options.jump == "none" or not layers else options.jump
    read = widths[-1] if jump is None else JOINED_WIDTH[jump](widths[1:])
    last = MLP if options.classifier else last
    return _stack(options, *layers, last(read, n_out, bias=options.bias), *after, jump=jump)


def _stack(options, *layers: nn.Module, jump: str | None = None) -> Stack:
    return Stack(*layers, dropout=options.dropout, input_dropout=options.input_dropout, jump=jump)


def on_edges(inner: Stack, n_out: int, f_edge: int) -> Stack:
    """Return the layers of a Stack f_in -> hidden, then an EdgeDecoder of its rows and of the states of edges.

    The states are made by an EdgeEncoder, of the inner layers or behind them, of f_edge attributes; 0: there are none.
    """
    layers, more = list(inner.layers), {"dropout": inner.dropout, "input_dropout": inner.input_dropout}
    layers = [inner] if inner.jump else layers
    hidden, has_states = inner.layers[-1].f_out, any(isinstance(layer, EdgeEncoder) for layer in layers)
    if f_edge and not has_states:
        layers.append(EdgeEncoder(f_edge, hidden, hidden))
    return Stack(*layers, EdgeDecoder(hidden, n_out, states=has_states or f_edge > 0), **more)


def gcn(f_in: int, n_out: int, options) -> Stack:
    """Return layers GCN."""
    return make_stack(f_in, n_out, options, GCN, GCN)


def sage(f_in: int, n_out: int, options) -> Stack:
    """Return layers SAGE; the last one adds."""
    layer = partial(SAGE, aggregator=options.aggregator)
    return make_stack(f_in, n_out, options, partial(layer, combine=options.combine), layer)


def gat(f_in: int, n_out: int, options) -> Stack:
    """Return layers GAT; the heads of hidden layers are concatenated, the heads of the last one averaged."""
    layer = partial(GAT, attention=options.attention, dropout=options.attention_dropout)
    last = partial(layer, heads=options.heads_out, merge="mean")
    return make_stack(f_in, n_out, options, partial(layer, heads=options.heads), last)


def gin(f_in: int, n_out: int, options) -> Stack:
    """Return layers GIN."""
    return make_stack(f_in, n_out, options, GIN, partial(GIN, hidden=options.hidden))


def mixhop(f_in: int, n_out: int, options) -> Stack:
    """Return layers MixHop of powers 0 .. options.powers (0: 2), side by side; the last layer adds them."""
    layer = partial(MixHop, powers=range((options.powers or 2) + 1))
    return make_stack(f_in, n_out, options, layer, partial(layer, combine="sum"))


def sgc(f_in: int, n_out: int, options) -> Stack:
    """Return one SGC layer F -> C with options.powers products (0: options.layers)."""
    return _stack(options, SGC(f_in, n_out, options.powers or options.layers, bias=options.bias))


def appnp(f_in: int, n_out: int, options) -> Stack:
    """Return dense layers, then options.powers products (0: 10)."""
    return make_stack(f_in, n_out, options, MLP, MLP, APPNP(n_out, options.powers or 10, options.teleport))


def lightgcn(f_in: int, n_out: int, options) -> Stack:
    """Return one LightGCN layer with options.layers products. Raises: UsageError unless n_out is f_in."""
    if n_out != f_in:
        raise UsageError(
            f"--model lightgcn has no weights, and makes {f_in} columns of {f_in}, not {n_out}: it is for --task links, "
            "with --features embedding; for classes take --model sgc or appnp"
        )
    return _stack(options, LightGCN(f_in, options.layers))


def gcnii(f_in: int, n_out: int, options) -> Stack:
    """Return a dense layer F -> hidden, options.layers products of width hidden, and a dense layer hidden -> C."""
    h, act, bias = options.hidden, options.act, options.bias
    middle = GCNII(h, options.layers, options.teleport, act=act, dropout=options.dropout)
    return _stack(options, MLP(f_in, h, act=act, bias=bias), middle, MLP(h, n_out, bias=bias))


def ngnn(f_in: int, n_out: int, options) -> Stack:
    """Return layers GCN, with a dense layer after each hidden one."""
    hidden = lambda f, c, **end: NGNN(GCN(f, c, **end), act=options.act, bias=options.bias)
    return make_stack(f_in, n_out, options, hidden, GCN)


def mlp(f_in: int, n_out: int, options) -> Stack:
    """Return dense layers."""
    return make_stack(f_in, n_out, options, MLP, MLP)


def meshgraphnet(f_in: int, n_out: int, options, f_edge: int) -> Stack:
    """Return an encoder of nodes and one of edges, options.layers layers EdgeMLP of width hidden, and a decoder."""
    h, act = options.hidden, options.act
    node_mlp = partial(MLP, hidden=(h,), inner=act)
    layers = (EdgeMLP(h, act=act) for _ in range(options.layers))
    return Stack(node_mlp(f_in, h, norm="layer"), EdgeEncoder(f_edge, h, h, act), *layers, node_mlp(h, n_out))


def gine(f_in: int, n_out: int, options, f_edge: int) -> Stack:
    """Return layers GINE."""
    layer = partial(GINE, f_edge=f_edge)
    return make_stack(f_in, n_out, options, layer, layer)


def transformer(f_in: int, n_out: int, options, f_edge: int) -> Stack:
    """Return layers Transformer; hidden layers have options.heads heads, the last one has one."""
    layer = partial(Transformer, f_edge=f_edge)
    return make_stack(f_in, n_out, options, partial(layer, heads=options.heads), layer)


def pna(f_in: int, n_out: int, options, f_edge: int) -> Stack:
    """Return layers PNA; messages are as wide as the hidden layers."""
    layer = partial(PNA, f_edge=f_edge, hidden=options.hidden)
    return make_stack(f_in, n_out, options, layer, layer)


def gatedgcn(f_in: int, n_out: int, options, f_edge: int) -> Stack:
    """Return dense layers of nodes and edges to width hidden, options.layers layers GatedGCN, and a dense one to C."""
    h = options.hidden
    layers = (GatedGCN(h) for _ in range(options.layers))
    return _stack(options, MLP(f_in, h), EdgeEncoder(f_edge, h, h, "relu"), *layers, MLP(h, n_out))


def _related(f_in: int, n_out: int, options, hidden: Callable[..., nn.Module], last: Callable[..., nn.Module]) -> Stack:
    """Return layers of relations, after a dense one F -> hidden unless F is hidden: it reads sparse features, by type."""
    h = options.hidden
    inner = make_stack(h, n_out, options, hidden, last)
    first = [] if f_in == h else [MLP(f_in, h, act=options.act, bias=options.bias)]
    return _stack(options, *first, *inner.layers)


def rgcn(f_in: int, n_out: int, options, relations: int, types: int) -> Stack:
    """Return layers RGCN; of more than 30 relations the matrices are made of 30."""
    layer = partial(RGCN, relations=relations, bases=BASES if relations > BASES else 0)
    return _related(f_in, n_out, options, layer, layer)


def rgat(f_in: int, n_out: int, options, relations: int, types: int) -> Stack:
    """Return layers RGAT; hidden layers have options.heads heads, the last one has one."""
    layer = partial(RGAT, relations=relations)
    return _related(f_in, n_out, options, partial(layer, heads=options.heads), layer)


def hgt(f_in: int, n_out: int, options, relations: int, types: int) -> Stack:
    """Return layers HGT with options.heads heads, and a dense one to C."""
    layer = partial(HGT, relations=relations, types=types)
    hidden = partial(layer, heads=options.heads)
    inner = _related(f_in, options.hidden, options, hidden, hidden)
    return _stack(options, *inner.layers, MLP(options.hidden, n_out, bias=options.bias))
