"""HeteroConv and HGTConv of PyG on a typed graph of ranks: HGTConv on the kernels of spgnn, with its own parameters.

Shapes: m own rows, m_t of a type, C out, R relations, K heads of width D. PyG orders columns of heads as k D + d, the
kernels as d K + k.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from ...errors import UsageError
from .row_dims import mark
from .typed_rows import EdgeIndexDict


def _hetero(self, *args_dict, **kwargs_dict):
    """Return what HeteroConv returns; it leaves out convolutions whose relation is not there, which is refused."""
    for given in (*args_dict, *kwargs_dict.values()):
        if isinstance(given, EdgeIndexDict):
            _check_known("HeteroConv has a convolution for", self.convs.keys(), given, "the graph")
    return type(self).forward(self, *args_dict, **kwargs_dict)


def _hgt(self, x_dict, edge_index_dict):
    """Return what HGTConv returns: Hu et al. 2020, eqs. (3) to (5), see layers.HGT."""
    on = getattr(edge_index_dict, "on", None)
    if on is None or self.flow != "source_to_target":  # PyG's is right in the order of its metadata alone
        ordered = {key: edge_index_dict[key] for key in self.edge_types if key in edge_index_dict}
        return type(self).forward(self, x_dict, ordered)
    _check_known("the graph has relation", edge_index_dict, self.edge_types, "HGTConv")
    A, typed, K, C = on.A, on.edges.typed(on.A)[0], self.heads, self.out_channels
    kqv_mC = typed.joined(self.kqv_lin(x_dict))
    k_mC, q_mC, v_mC = (_heads_last(part, K) for part in kqv_mC.chunk(3, 1))
    of_r = torch.tensor([self.edge_types_map[triple] for triple in edge_index_dict])
    k_MC, v_MC = (A.pairs.columns(A, A.fetch(x), _by_head(W, K)[of_r]) for x, W in ((k_mC, self.k_rel), (v_mC, self.v_rel)))  # fmt: skip
    mu_RK = torch.cat([self.p_rel["__".join(triple)] for triple in edge_index_dict])
    S_EK = A.pairs.dot(q_mC, k_MC, K) * mu_RK[A.pairs.relation_E] / math.sqrt(C // K)
    Z_mC = A.pairs.sum(A.pairs.softmax(S_EK), v_MC).to(kqv_mC.dtype)
    Z_mC, found = Z_mC.view(len(Z_mC), -1, K).transpose(1, 2).reshape(len(Z_mC), C), {}
    for t, name in enumerate(typed.types.names):
        if name not in self.dst_node_types:
            continue
        Z = self.out_lin({name: functional.gelu(Z_mC[typed.own[t]])})[name]
        if Z.shape[-1] == x_dict[name].shape[-1]:
            alpha = self.skip[name].sigmoid()
            Z = alpha * Z + (1 - alpha) * x_dict[name]
        mark(Z, 0, t)
        found[name] = Z
    return found


def _check_known(what: str, triples, known, whose: str) -> None:
    """Raise UsageError for a relation that is not among others."""
    if unknown := [triple for triple in triples if triple not in known]:
        raise UsageError(
            f"{what} {unknown[0]}, which {whose} has not: it has {', '.join(map(str, known))}. Inverses are called rev_NAME; "
            "a graph that is used with edges='in' has none"
        )


def _heads_last(H_mC: torch.Tensor, K: int) -> torch.Tensor:
    """Return columns k D + d in the order d K + k."""
    return H_mC.reshape(len(H_mC), K, -1).transpose(1, 2).reshape(H_mC.shape)


def _by_head(linear, K: int) -> torch.Tensor:
    """Return the matrices of a HeteroLinear of heads and relations as (R, D K, D K), a block for each head."""
    W_KRDD = linear.weight.view(K, -1, *linear.weight.shape[1:])
    _, R, D, _ = W_KRDD.shape
    eye = torch.eye(K, dtype=W_KRDD.dtype, device=W_KRDD.device)
    return torch.einsum("krde,kl->rdkel", W_KRDD, eye).reshape(R, D * K, D * K)


BY_TYPES: dict[str, Callable[..., Any]] = {"HeteroConv": _hetero, "HGTConv": _hgt}
