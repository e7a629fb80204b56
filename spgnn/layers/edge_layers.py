"""Layers that read attributes of edges, written with A's calls on edges.

Shapes: n own rows, E nonzeros, F in, C out, F_e attributes e_ij of an edge, K heads of width D, heads innermost. No
self-loops are added. In the examples A has 240 nonzeros with 3 attributes each, and H 60 rows and 16 columns.
"""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import nn

from ..errors import UsageError, check_choice, check_integer, check_number
from ..spmm.operator.features import AnyRows
from ..spmm.operator.view import LayerView
from .layer import Ending, Layer, add_bias

Pair = tuple[torch.Tensor, torch.Tensor]  # H and E
MayLack = tuple[torch.Tensor, torch.Tensor | None]
INNER = {"silu": nn.SiLU, "relu": nn.ReLU, "elu": nn.ELU, "gelu": nn.GELU, "tanh": nn.Tanh}


class EdgeEncoder(Layer):
    """E_ij = norm(act(e_ij W_1 + b_1) W_2 + b_2), e_ij the attributes of the edge; H is returned unchanged.

    Args: f_edge  attributes of an edge; f_in: width of H; hidden: width of E; act: silu, relu, elu, gelu or tanh.

    >>> H, E = EdgeEncoder(f_edge=3, f_in=16, hidden=16)(A, H)
    >>> E.shape
    torch.Size([240, 16])
    """

    operator, hops, is_random, carries_edges = "none", None, False, True

    def __init__(self, f_edge: int, f_in: int, hidden: int, act: str = "silu"):
        super().__init__(f_in, f_in)
        self.f_edge, self.hidden, self.mlp = f_edge, hidden, _mlp(f_edge, hidden, hidden, act)

    def forward(self, A: LayerView, H_nF: torch.Tensor, E_EF: torch.Tensor | None = None) -> Pair:
        """Return H and the states of edges, (E, hidden). Nothing is exchanged."""
        return H_nF, A.map_edges(self.mlp, attributes(A, self.f_edge), self.hidden)


class EdgeMLP(Layer):
    """E'_ij = E_ij + f([H_i, H_j, E_ij]), H'_i = H_i + g([H_i, sum_j E'_ij]); f, g: norm(act(x W_1 + b_1) W_2 + b_2).

    Args: f_in    width of H and of E, F.
          hidden  width of the inner products, None: F.
          act     silu, relu, elu, gelu or tanh.
    The parts of W_1 of f for H_i and H_j multiply rows of nodes, so that `hidden` columns of ghost rows travel, once each
    way. Backward computes both MLPs again, in chunks: a layer stores only H, E and E'.
    Source: Pfaff et al. 2021 (MeshGraphNets), eq. (1).

    >>> Stack(EdgeEncoder(3, 16, 16), EdgeMLP(16, hidden=32))(A, H).shape
    torch.Size([60, 16])
    """

    operator, hops, is_random, carries_edges = "none", None, False, True

    def __init__(self, f_in: int, hidden: int | None = None, act: str = "silu"):
        super().__init__(f_in, f_in)
        hidden = check_integer("hidden", f_in if hidden is None else hidden, 1)
        self.W, self.b = self.weight(3 * f_in, hidden), self.weight(hidden)
        self.edge = _mlp(hidden, hidden, f_in, act)[1:]  # its first product is W
        self.node = _mlp(2 * f_in, hidden, f_in, act)

    def forward(self, A: LayerView, H_nF: torch.Tensor, E_EF: torch.Tensor | None = None) -> Pair:
        """Return H' (n, F) and E' (E, F). Collective."""
        return A.update_edges(self.edge, self.node, H_nF, states(self, E_EF), self.W, self.b)


class EdgeDecoder(Layer):
    """Z_ij = relu(H_i W_i + H_j W_j + E_ij W_e + b) W + b_o, a row for each edge: the last layer of a model of edges.

    Args: f_in    width of H and of E; f_out: width of Z; hidden: columns of W_i, None: f_in.
          states  E is read; False: without E W_e.
    `hidden` columns of ghost rows travel, once each way.

    >>> Stack(EdgeEncoder(3, 16, 16), EdgeDecoder(16, 2))(A, H).shape
    torch.Size([240, 2])
    """

    operator, hops, is_random, carries_edges = "none", None, False, True

    def __init__(self, f_in: int, f_out: int, hidden: int | None = None, states: bool = True):
        super().__init__(f_in, f_out)
        hidden = check_integer("hidden", f_in if hidden is None else hidden, 1)
        self.W_i, self.W_j = self.weight(f_in, hidden), self.weight(f_in, hidden)
        self.W_e = self.weight(f_in, hidden) if states else None
        self.b, self.W, self.b_o = self.weight(hidden), self.weight(hidden, f_out), self.weight(f_out)

    def forward(self, A: LayerView, H_nF: torch.Tensor, E_EF: torch.Tensor | None = None) -> MayLack:
        """Return Z (E, C) instead of H, and E. Collective."""
        of_E = None if self.W_e is None else states(self, E_EF) @ self.W_e
        Z = torch.relu(A.on_edges(H_nF @ self.W_i + self.b, H_nF @ self.W_j, of_E))
        return Z @ self.W + self.b_o, E_EF


class GINE(Layer):
    """Z = act(relu(((1 + eps) H_i + sum_j relu(H_j + e_ij W_e)) W_1 + b_1) W_2 + b).

    Args: f_in, f_out, f_edge  widths F, C and F_e; hidden: of the inner layer, None: f_out.
          eps   weight of the node's own row, less 1.
          act, bias (True), norm, residual  see Layer.end_with.
    F columns are exchanged each way. Source: Hu et al. 2020, section 5; W_e as in PyG's GINEConv with edge_dim.

    >>> GINE(16, 8, f_edge=3)(A, H).shape
    torch.Size([60, 8])
    """

    operator, hops, is_random = "none", 1, False

    def __init__(
        self, f_in: int, f_out: int, f_edge: int, hidden: int | None = None, eps: float = 0.0, **end: Unpack[Ending]
    ):
        super().__init__(f_in, f_out)
        bias = end.setdefault("bias", True)
        hidden = check_integer("hidden", f_out if hidden is None else hidden, 1)
        self.W_e, self.W_1, self.W_2 = self.weight(f_edge, f_in), self.weight(f_in, hidden), self.weight(hidden, f_out)
        self.b_1, self.eps = self.weight(hidden) if bias else None, check_number("eps", eps)
        self.end_with(**end)

    def forward(self, A: LayerView, H_mF: torch.Tensor) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        S_nF = A.sum(torch.relu(A.cols(H_mF) + _weighted(A, self.W_e)))
        U = torch.relu(add_bias(((1 + self.eps) * A.select(H_mF) + S_nF) @ self.W_1, self.b_1))
        return self.finish(A, H_mF, U @ self.W_2)


class NNConv(Layer):
    """Z_i = act(H_i W + sum_j H_j W_ij + b), W_ij = sum_b c_b(e_ij) W_b, c(e) = relu(e W_e + b_e) W_c.

    The matrix W_ij of an edge is a combination of B basis matrices, and is not stored. C B columns of ghost rows travel.
    Args: f_in, f_out, f_edge  widths F, C and F_e; basis: B matrices; hidden: width of the network of edges.
          act, bias (True), norm, residual  see Layer.end_with.
    Source: Gilmer et al. 2017, section 5 (edge network); the basis: Schlichtkrull et al. 2018, eq. (3).

    >>> NNConv(16, 8, f_edge=3, basis=2)(A, H).shape
    torch.Size([60, 8])
    """

    operator, hops, is_random = "none", 1, False

    def __init__(self, f_in: int, f_out: int, f_edge: int, basis: int = 4, hidden: int = 16, **end: Unpack[Ending]):
        super().__init__(f_in, f_out)
        for name, value in (("basis", basis), ("hidden", hidden)):
            check_integer(name, value, 1)
        self.basis, self.W, self.W_FCB = basis, self.weight(f_in, f_out), self.weight(f_in, f_out * basis)
        self.W_e, self.b_e, self.W_c = self.weight(f_edge, hidden), self.weight(hidden), self.weight(hidden, basis)
        self.end_with(**Ending(bias=True) | end)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        c_EB = torch.relu(_weighted(A, self.W_e) + self.b_e) @ self.W_c
        S_nC = A.sum(c_EB, H_mF @ self.W_FCB).view(-1, self.f_out, self.basis).sum(2)
        return self.finish(A, H_mF, A.select(H_mF) @ self.W + S_nC)


class Transformer(Layer):
    """Z_i = act(H_i W + sum_j alpha_ij (v_j + e_ij W_e) + b), alpha = softmax_j(<q_i, k_j + e_ij W_e> / sqrt(D)).

    q = H W_q, k = H W_k, v = H W_v, for each head. e_ij W_e is not stored, since
    <q_i, e_ij W_e> = <W_e q_i, e_ij> and sum_j alpha_ij e_ij W_e = (sum_j alpha_ij e_ij) W_e.
    Args: f_in, f_out, f_edge  widths F, C = K D and F_e; heads: K, of which C is a multiple.
          act, bias (True), norm, residual  see Layer.end_with.
    2 C columns are exchanged each way. Source: Shi et al. 2021, eqs. (3) and (4), without their gate.

    >>> Transformer(16, 8, f_edge=3, heads=4)(A, H).shape
    torch.Size([60, 8])
    """

    operator, hops, is_random = "none", 1, False

    def __init__(self, f_in: int, f_out: int, f_edge: int, heads: int = 1, **end: Unpack[Ending]):
        super().__init__(f_in, f_out)
        self.heads = check_integer("heads", heads, 1)
        if f_out % heads:
            raise UsageError(f"heads = {heads} do not divide f_out = {f_out}; choose others")
        self.W, self.W_q, self.W_k, self.W_v = (self.weight(f_in, f_out) for _ in range(4))
        self.W_e = self.weight(f_edge, f_out)
        self.end_with(**Ending(bias=True) | end)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        K, D = self.heads, self.f_out // self.heads
        q, e_EF, W_eDK = H_mF @ self.W_q, attributes(A, len(self.W_e)), self.W_e.view(-1, D, K)
        of_rows = torch.einsum("ndk,fdk->nfk", q.view(-1, D, K), W_eDK.to(q.dtype)).flatten(1)  # W_e q
        S_EK = A.dot(q, H_mF @ self.W_k, K) + (A.rows(of_rows).view(-1, e_EF.shape[1], K) * e_EF[:, :, None]).sum(1)
        alpha_EK = A.softmax(S_EK / math.sqrt(D))
        e_nFK = A.sum((alpha_EK[:, None, :] * e_EF[:, :, None]).flatten(1)).view(-1, e_EF.shape[1], K)
        of_edges = torch.einsum("nfk,fdk->ndk", e_nFK, W_eDK.to(e_nFK.dtype)).flatten(1)
        return self.finish(A, H_mF, A.select(H_mF) @ self.W + A.sum(alpha_EK, H_mF @ self.W_v) + of_edges)


class PNA(Layer):
    """Z_i = act([H_i, s(d_i) x (mean, max, min, std)_j M_ij] W + b), M_ij = relu(H_i W_i + H_j W_j + e_ij W_e + b_m).

    s(d) x M: M, M log(d + 1) / delta and M delta / log(d + 1), side by side; d_i is the number of edges of row i.
    Args: f_in, f_out, f_edge  widths F, C and F_e; hidden: width of messages, None: f_in.
          delta  mean of log(d + 1) over the training nodes.
          act, bias (True), norm, residual  see Layer.end_with.
    `hidden` columns are exchanged each way. Source: Corso et al. 2020, eqs. (5) to (8).

    >>> PNA(16, 8, f_edge=3, hidden=4)(A, H).shape
    torch.Size([60, 8])
    """

    operator, hops, is_random = "none", 1, False

    def __init__(
        self, f_in: int, f_out: int, f_edge: int, hidden: int | None = None, delta: float = 1.0, **end: Unpack[Ending]
    ):
        super().__init__(f_in, f_out)
        hidden = check_integer("hidden", f_in if hidden is None else hidden, 1)
        self.delta = check_number("delta", delta, 1e-6)
        self.W_i, self.W_j = self.weight(f_in, hidden), self.weight(f_in, hidden)
        self.W_e, self.b_m = self.weight(f_edge, hidden), self.weight(hidden)
        self.W = self.weight(f_in + 12 * hidden, f_out)
        self.end_with(**Ending(bias=True) | end)

    def forward(self, A: LayerView, H_mF: AnyRows) -> torch.Tensor:
        """Return Z, (n, C). Collective."""
        M = torch.relu(A.on_edges(H_mF @ self.W_i + self.b_m, H_mF @ self.W_j, _weighted(A, self.W_e)))
        joined = torch.cat([A.mean(M), A.max(M), A.min(M), A.std(M)], 1)
        degree = torch.log(A.sum(M.new_ones(len(M), 1)) + 1) / self.delta
        scaled = [joined, joined * degree, torch.where(degree > 0, joined / degree.clamp(min=1e-30), 0)]
        return self.finish(A, H_mF, torch.cat([A.select(H_mF), *scaled], 1) @ self.W)


class GatedGCN(Layer):
    """E'_ij = E_ij + relu(norm(x_ij)), H'_i = H_i + relu(norm(H_i U + sum_j s(x_ij) * H_j V / (sum_j s(x_ij) + 1e-6))).

    x_ij = H_i W_i + H_j W_j + E_ij W_e + b, s the logistic function, * entry by entry, norm the layer norm of a row.
    Args: f_in  width of H and of E, F.
    2 F columns are exchanged each way. Source: Bresson & Laurent 2018, eqs. (9) to (11); normalised gates: Dwivedi et
    al. 2020, eqs. (48) to (51), with layer norm instead of batch norm.

    >>> Stack(EdgeEncoder(3, 16, 16), GatedGCN(16))(A, H).shape
    torch.Size([60, 16])
    """

    operator, hops, is_random, carries_edges = "none", None, False, True

    def __init__(self, f_in: int):
        super().__init__(f_in, f_in)
        self.U, self.V, self.W_i, self.W_j, self.W_e = (self.weight(f_in, f_in) for _ in range(5))
        self.b_x, self.b = self.weight(f_in), self.weight(f_in)
        self.norm_x, self.norm_h = nn.LayerNorm(f_in), nn.LayerNorm(f_in)

    def forward(self, A: LayerView, H_nF: torch.Tensor, E_EF: torch.Tensor | None = None) -> Pair:
        """Return H' (n, F) and E' (E, F). Collective."""
        E_EF = states(self, E_EF)
        x_EF = A.on_edges(H_nF @ self.W_i + self.b_x, H_nF @ self.W_j, E_EF @ self.W_e)
        gate_EF = torch.sigmoid(x_EF)
        Z = H_nF @ self.U + self.b + A.sum(gate_EF, H_nF @ self.V) / (A.sum(gate_EF) + 1e-6)
        return H_nF + torch.relu(self.norm_h(Z)), E_EF + torch.relu(self.norm_x(x_EF))


def attributes(A: LayerView, f_edge: int) -> torch.Tensor:
    """Return the attributes of edges, (E, F_e). Raises: UsageError for another F_e than f_edge."""
    e_EF = A.edges
    if e_EF.shape[1] != f_edge:
        raise UsageError(f"edges have {e_EF.shape[1]} attributes, and the layer was made with f_edge = {f_edge}")
    return e_EF


def states(layer: Layer, E_EF: torch.Tensor | None) -> torch.Tensor:
    """Return the states of edges. Raises: UsageError if no layer before has made them."""
    if E_EF is None:
        name = type(layer).__name__
        raise UsageError(f"{name} reads the states of edges: put an EdgeEncoder(f_edge, f_in, hidden) before it")
    return E_EF


def _mlp(f_in: int, hidden: int, f_out: int, act: str) -> nn.Sequential:
    """Return norm(act(x W_1 + b_1) W_2 + b_2)."""
    check_choice("act", act, tuple(INNER))
    return nn.Sequential(nn.Linear(f_in, hidden), INNER[act](), nn.Linear(hidden, f_out), nn.LayerNorm(f_out))


def _weighted(A: LayerView, W_e: torch.Tensor) -> torch.Tensor:
    """Return e_ij W_e, (E, C)."""
    e_EF = attributes(A, len(W_e))
    return e_EF @ W_e.to(e_EF.dtype)
