"""Convolutions of PyG on the kernels of spgnn, with the module's own parameters; other settings run as PyG has them.

Shapes: n own rows, F in, C out, heads K of width D. PyG orders columns of heads as k D + d, the kernels as d K + k.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ...spmm.edges.relations import Mean
from ...spmm.exchange.owners import RankSum
from ...spmm.exchange.scaling import IN
from ...spmm.operator.subgraph import SubgraphSpMM
from ...spmm.operator.view import LayerView
from ..layer import add_bias
from .ends import Ends, plain
from .on_ranks import OnRanks
from .typed_kernels import BY_TYPES


def use_kernels(inner: nn.Module) -> None:
    """Let a convolution that spgnn has run on its kernels where its edge_index is the graph's; and a norm, over all rows."""
    if type(inner).__name__ in KERNELS and type(inner).__module__.startswith("torch_geometric."):
        inner.forward = MethodType(_forward, inner)
    if type(inner).__name__ in BY_TYPES and type(inner).__module__.startswith("torch_geometric."):
        inner.forward = MethodType(BY_TYPES[type(inner).__name__], inner)
    if any(cls.__name__ == "QuantileAggregation" for cls in type(inner).__mro__):
        inner.forward = MethodType(_of_groups, inner)
    if type(inner).__name__ == "LayerNorm" and hasattr(inner, "mode"):
        inner.forward = MethodType(_of_all_entries, inner)


def _forward(self, x, edge_index, *args, **kwargs):
    """Return what the class's own forward returns."""
    on = edge_index.on if isinstance(edge_index, Ends) else None
    given = [value for value in (*args, *kwargs.values()) if value is not None]
    if on is not None and torch.is_tensor(x) and x.ndim == 2 and _is_plain(self, on, given):
        out = KERNELS[type(self).__name__](self, on, x)
        if out is not None:
            return out.to(x.dtype)
    return type(self).forward(self, x, edge_index, *args, **kwargs)


def _is_plain(conv, on: OnRanks, given: list) -> bool:
    """Return whether edges are the graph's, each pair once, with the weights that the convolution reads."""
    is_typed = KERNELS[type(conv).__name__] is _rgcn
    reads = on.weight_E if type(conv).__name__ == "GCNConv" else None  # the others do not read weights
    reads = on.edges.relations(on.A.operator) if is_typed and on.edges is not None else reads
    is_whole = len(given) == 1 and given[0] is reads if is_typed or reads is not None else not given
    has_hooks = any(getattr(conv, f"_{kind}_hooks") for kind in ("message_forward_pre", "message_forward"))
    operator = on.A.operator
    is_other = isinstance(operator, SubgraphSpMM) or not is_typed and operator.edge_attr is not None  # or a multigraph
    return conv.flow == "source_to_target" and is_whole and not has_hooks and not is_other


def _at(on: OnRanks, norm: Any) -> LayerView:
    """Return the operator of another normalisation in this layer."""
    return on.A.at(on.A.layer, on.A.is_last, norm, on.A.key)


def _gcn(conv, on: OnRanks, x):
    """D^-1/2 (A + I) D^-1/2 x W' + b, D the sums of rows."""
    norms = getattr(on.A.operator, "norms", None)
    if (
        not (conv.normalize and conv.add_self_loops)
        or conv.improved
        or conv.aggr not in ("add", "sum")
        or (norms is not None and norms.bad_weight is not None)
    ):
        return None
    return _at(on, IN).chain(x, conv.lin.weight.t(), conv.bias)


def _sage(conv, on: OnRanks, x):
    """The mean or sum of x over a row, W_l' + b_l, + x W_r'."""
    norm = {"mean": "row", "add": "none", "sum": "none"}.get(str(conv.aggr))
    if norm is None or on.weight_E is not None:
        return None
    from_x = functional.relu(conv.lin(x)) if conv.project and hasattr(conv, "lin") else x
    own = conv.lin_r(x) if conv.root_weight else None
    out = _at(on, norm).chain(from_x, conv.lin_l.weight.t(), conv.lin_l.bias, add=own)
    return functional.normalize(out, p=2.0, dim=-1) if conv.normalize else out


def _gin(conv, on: OnRanks, x):
    """nn((1 + eps) x + the sum of x over a row)."""
    if on.weight_E is not None or conv.aggr not in ("add", "sum"):
        return None
    first = conv.nn[0] if type(conv.nn) is nn.Sequential and len(conv.nn) else None
    if type(first) is not nn.Linear or conv.nn._forward_hooks or first._forward_hooks:
        return conv.nn(on.A @ x + (1 + conv.eps) * x)
    out = on.A.own_chain(x, first.weight.t(), 1 + conv.eps, first.bias)
    for module in conv.nn[1:]:
        out = module(out)
    return out


def _gat(conv, on: OnRanks, x):
    """sum_j alpha_ij x_j W', alpha the softmax of lrelu(att_dst x_i W' + att_src x_j W')."""
    if conv.lin is None or not _attends(conv):
        return None
    X = _at(on, "loops").linear(x, _by_entry(conv, conv.lin.weight).t())
    dst_DK, src_DK = (att[0].t().contiguous() for att in (conv.att_dst, conv.att_src))
    return _merged(conv, x, _at(on, "loops").attend(X, dst_DK, src_DK, **_softmax_of(conv, on)))


def _gatv2(conv, on: OnRanks, x):
    """sum_j alpha_ij l_j, alpha the softmax of att lrelu(l_j + r_i)."""
    if not _attends(conv):
        return None
    A, left, right = _at(on, "loops"), conv.lin_l if conv.share_weights else conv.lin_r, conv.lin_l
    bias = lambda lin: None if lin.bias is None else _by_entry(conv, lin.bias)
    l_mKD = add_bias(x @ _by_entry(conv, left.weight).t(), bias(left))
    r = A.linear(x, _by_entry(conv, right.weight).t(), bias(right))
    return _merged(conv, x, A.attend2(l_mKD, r, conv.att[0].t().contiguous(), **_softmax_of(conv, on)))


def _rgcn(conv, on: OnRanks, x):
    """sum_r A_r x W_r + x W_0 + b, A_r the mean or sum over the edges of relation r."""
    means: dict[str, Mean] = {"mean": "relation", "add": "none", "sum": "none"}
    mean = means.get(str(conv.aggr))
    if mean is None or on.weight_E is not None or not x.is_floating_point():
        return None
    W = conv.weight
    if conv.num_bases is not None:
        W = (conv.comp @ W.flatten(1)).view(conv.num_relations, -1, conv.out_channels)
    out = on.A.typed_sum(x, W, mean)
    return add_bias(out if conv.root is None else out + x @ conv.root, conv.bias)


def _attends(conv) -> bool:
    return conv.add_self_loops and conv.edge_dim is None and conv.aggr in ("add", "sum")


def _softmax_of(conv, on: OnRanks) -> dict:
    """Return the slope of the scores, and the dropout of the weights of edges, which is a mask of the layer."""
    on.draw += 1
    return {"slope": float(conv.negative_slope), "rate": conv.dropout if conv.training else 0.0, "draw": on.draw}


def _by_entry(conv, W_KDF: torch.Tensor) -> torch.Tensor:
    """Return rows k D + d in the order d K + k."""
    K = conv.heads
    return W_KDF if K == 1 else W_KDF.view(K, -1, *W_KDF.shape[1:]).transpose(0, 1).reshape(W_KDF.shape)


def _merged(conv, x, Z_nDK: torch.Tensor) -> torch.Tensor:
    """Return heads side by side or their mean, with the residual and the bias of the convolution."""
    n, K, D = len(Z_nDK), conv.heads, conv.out_channels
    if not conv.concat:
        out = Z_nDK.view(n, D, K).mean(2)
    else:
        out = Z_nDK if K == 1 else Z_nDK.view(n, D, K).transpose(1, 2).reshape(n, K * D)
    return add_bias(out if conv.res is None else out + conv.res(x), conv.bias)


def _of_all_entries(self, x, batch=None, batch_size=None):
    """Return PyG's LayerNorm of mode graph without a batch: (x - mean) / (deviation + eps) w + b over all entries."""
    if not isinstance(batch, Ends) or self.mode != "graph":
        return type(self).forward(self, x, batch, batch_size)
    A = batch.on.A
    total, count = RankSum.apply(A, torch.stack([x.sum(), x.new_tensor(float(x.numel()))]))
    x = x - total / count.detach()
    out = x / ((RankSum.apply(A, x.square().sum().view(1)) / count.detach()).sqrt() + self.eps)
    return out if self.weight is None else out * self.weight + self.bias


def _of_groups(self, x, index=None, ptr=None, dim_size=None, dim=-2):
    """Return PyG's quantiles of groups of rows; it reads the row before an empty first group, which is of a rank alone."""
    if not isinstance(index, Ends) or dim % x.ndim:
        return type(self).forward(self, x, index, ptr, dim_size, dim)
    index, size = plain(index), dim_size or 0
    has_rows = torch.bincount(index, minlength=size) > 0
    out = x.new_full((size, *x.shape[1:-1], len(self.q) * x.shape[-1]), self.fill_value)
    if not len(index):
        return out + x.sum()  # of no rows: other ranks exchange gradients
    some = type(self).forward(self, x, (has_rows.cumsum(0) - 1)[index], None, int(has_rows.sum()), dim)
    return out.index_copy(0, has_rows.nonzero().view(-1), some)


KERNELS = {"GCNConv": _gcn, "SAGEConv": _sage, "GINConv": _gin, "GATConv": _gat, "GATv2Conv": _gatv2}
KERNELS |= {"RGCNConv": _rgcn, "FastRGCNConv": _rgcn}
