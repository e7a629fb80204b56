"""Layers that read the relations of edges: RGCN, RGAT, HGT.

Shapes: n own rows, F in, C out, R relations, T types of nodes, K heads of width D, heads innermost. No self-loops are
added. In the examples edges have 4 relations, and H 60 rows and 16 columns.
"""

from __future__ import annotations

import math
from typing import Unpack

import torch
import torch.nn.functional as F

from ..errors import UsageError, check_choice, check_integer, check_number
from ..spmm.edges.relations import MEANS, Mean
from ..spmm.operator.features import SparseRows
from ..spmm.operator.view import LayerView
from .layer import AnyRows, BuiltIn, Ending, Layer, dense_rows

NARROW = 512  # columns of sparse features that are made dense; wider ones are refused


def _narrow_rows(layer: Layer, H: AnyRows) -> torch.Tensor:
    """Return H as a tensor. Raises: UsageError where it is sparse and wide."""
    is_sparse = isinstance(H, SparseRows) and H.shape[1] <= NARROW
    return H.dense().to(H.dtype) if is_sparse else dense_rows(layer, H)


class RGCN(BuiltIn):
    """Z = act(H W_0 + sum_r A_r H W_r + b); A_r has 1 / |N_i^r| at the edges of relation r.

    Args:   f_in, f_out  widths F and C; relations: R.
            bases   B: W_r = sum_b a_rb V_b, with B matrices V for all relations. 0: W_r are free.
            blocks  B: W_r has B blocks on its diagonal, and 0 elsewhere; F and C are multiples of it. 0: it is full.
            mean    relation; all: A_r has 1 / |N_i| instead, of all edges of row i; none: 1.
            act, bias (True), norm, residual  see Layer.end_with.
    F columns are exchanged each way, once for all relations.
    Source: Schlichtkrull et al. 2018, eqs. (2), (3), (4).

    >>> RGCN(16, 8, relations=4, bases=2)(A, H).shape
    torch.Size([60, 8])
    """

    operator, hops = "none", 1

    def __init__(
        self,
        f_in: int,
        f_out: int,
        relations: int,
        bases: int = 0,
        blocks: int = 0,
        mean: Mean = "relation",
        **end: Unpack[Ending],
    ):
        super().__init__(f_in, f_out)
        R = check_integer("relations", relations, 1)
        bases, blocks = check_integer("bases", bases, 0), check_integer("blocks", blocks, 0)
        if bases and blocks:
            raise UsageError(f"bases = {bases} and blocks = {blocks} are two forms of W_r; give one")
        if blocks and (f_in % blocks or f_out % blocks):
            raise UsageError(f"blocks = {blocks} do not divide f_in = {f_in} and f_out = {f_out}; choose others")
        check_choice("mean", mean, MEANS)
        self.mean = mean
        shape = (blocks, f_in // blocks, f_out // blocks) if blocks else (f_in, f_out)
        self.W, self.a_RB = self.weight(bases or R, *shape), self.weight(R, bases) if bases else None
        self.W_FC = self.weight(f_in, f_out)
        self.end_with(**Ending(bias=True) | end)

    def forward(self, A: LayerView, H_mF: torch.Tensor) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        H_mF = _narrow_rows(self, H_mF)
        W = self.W if self.a_RB is None else torch.tensordot(self.a_RB, self.W, 1)  # eq. (3)
        S_nC = A.typed_sum(H_mF, W, self.mean)
        return self.dense(A, H_mF, A.select(H_mF), self.W_FC, S_nC)  # eq. (2)


class RGAT(BuiltIn):
    """Z_i = act(sum over relations r and j in N_i^r of alpha_rij H_j W_r + b), for each of K heads.

    alpha is the softmax over all edges of row i, of every relation, of lrelu(H_i W_r q + H_j W_r k).
    Args:   f_in, f_out  widths F and C = K D; relations: R; heads: K, of which C is a multiple.
            slope  of the leaky ReLU below 0.
            act, bias (True), norm, residual  see Layer.end_with.
    F columns are exchanged each way, once for all relations.
    Source: Busbridge et al. 2019, eqs. (3), (5), (6): additive scores, softmax across relations.

    >>> RGAT(16, 8, relations=4, heads=2)(A, H).shape
    torch.Size([60, 8])
    """

    operator, hops = "none", 1

    def __init__(
        self, f_in: int, f_out: int, relations: int, heads: int = 1, slope: float = 0.2, **end: Unpack[Ending]
    ):
        super().__init__(f_in, f_out)
        R, self.heads = check_integer("relations", relations, 1), heads_of(f_out, heads)
        self.slope = check_number("slope", slope, 0)
        self.W_RFC = self.weight(R, f_in, f_out)
        self.q_CK, self.k_CK = self.weight(f_out, heads), self.weight(f_out, heads)
        self.end_with(**Ending(bias=True) | end)

    def forward(self, A: LayerView, H_mF: torch.Tensor) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        H_mF, pairs = _narrow_rows(self, H_mF), A.pairs
        pairs.check(len(self.W_RFC))
        V_MC = pairs.columns(A, A.fetch(H_mF), self.W_RFC)
        e_EK = pairs.added(pairs.rows(A, H_mF, self.W_RFC @ self.q_CK), V_MC @ self.k_CK)  # eq. (3)
        alpha_EK = pairs.softmax(F.leaky_relu(e_EK, self.slope))  # eq. (6)
        return self.finish(A, H_mF, pairs.sum(alpha_EK, V_MC).to(A.out_dtype))


class HGT(BuiltIn):
    """Z_i = act(s_t gelu(sum over r, j of alpha_rij H_j V_s M_r) O_t + (1 - s_t) H_i + b), t and s the types of i and j.

    alpha is the softmax over all edges of row i, of every relation, of mu_r <H_i Q_t, H_j K_s A_r> / sqrt(D), for each
    head. Q, K, V, O have a bias for each type, A_r and M_r are (D, D) for each head; s_t is learned where F = C, else 1.
    Args:   f_in, f_out  widths F and C = K D; relations: R; types: T; heads: K, of which C is a multiple.
            act, bias (False), norm, residual  see Layer.end_with.
    F columns are exchanged each way, once for all relations.
    Source: Hu et al. 2020, eqs. (3) to (5).

    >>> HGT(16, 8, relations=4, heads=2)(A, H).shape
    torch.Size([60, 8])
    """

    operator, hops = "none", 1

    def __init__(self, f_in: int, f_out: int, relations: int, types: int = 1, heads: int = 1, **end: Unpack[Ending]):
        super().__init__(f_in, f_out)
        R, T = check_integer("relations", relations, 1), check_integer("types", types, 1)
        self.heads, D = heads_of(f_out, heads), f_out // heads
        self.Q, self.K, self.V, self.O = (self.weight(T, f, f_out) for f in (f_in, f_in, f_in, f_out))
        self.b_Q, self.b_K, self.b_V, self.b_O = (self.weight(T, f_out) for _ in range(4))
        self.A_r, self.M_r = self.weight(R, heads, D, D), self.weight(R, heads, D, D)
        self.mu, self.skip = self.weight(R, heads), self.weight(T) if f_in == f_out else None
        self.end_with(**end)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights; mu and s start at 1, biases at 0."""
        super().initialise(generator)
        with torch.no_grad():
            for weight in (self.mu, self.skip):
                if weight is not None:
                    weight.fill_(1)
            for bias in (self.b_Q, self.b_K, self.b_V, self.b_O):
                bias.zero_()

    def forward(self, A: LayerView, H_mF: torch.Tensor) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        H_mF, pairs = _narrow_rows(self, H_mF), A.pairs
        pairs.check(len(self.A_r), len(self.Q))
        H_tF, H_nF, K = A.fetch(H_mF), A.select(H_mF), self.heads
        r, t = pairs.kind_2K
        K_MC, V_MC = (
            pairs.of_kinds(A, H_tF, _by_relation(W[t], M[r]), _by_relation(b[t], M[r]))
            for W, b, M in ((self.K, self.b_K, self.A_r), (self.V, self.b_V, self.M_r))
        )
        S_EK = pairs.dot(A.by_type(H_nF, self.Q, self.b_Q), K_MC, K)  # eq. (3)
        alpha_EK = pairs.softmax(S_EK * self.mu[pairs.relation_E] * math.sqrt(K / self.f_out))
        Z_nC = A.by_type(F.gelu(pairs.sum(alpha_EK, V_MC)), self.O, self.b_O)  # eqs. (4), (5)
        if self.skip is not None:
            s_n1 = torch.sigmoid(self.skip)[A.type_n, None]
            Z_nC = s_n1 * Z_nC + (1 - s_n1) * H_nF
        return self.finish(A, H_mF, Z_nC.to(A.out_dtype))


def _by_relation(W: torch.Tensor, M_RKDD: torch.Tensor) -> torch.Tensor:
    """Return W_r M_r, head by head, of W (R, F, D K) or (R, D K)."""
    R, K, D = M_RKDD.shape[:3]
    F_in = W.shape[1] if W.ndim == 3 else 1
    return torch.einsum("rfdk,rkde->rfek", W.reshape(R, F_in, D, K), M_RKDD).reshape(W.shape)


def heads_of(f_out: int, heads: int) -> int:
    """Return the number of heads. Raises: UsageError unless they divide f_out."""
    if f_out % check_integer("heads", heads, 1):
        raise UsageError(f"heads = {heads} do not divide f_out = {f_out}; choose others")
    return heads
