"""Messages on edges: an MLP at each edge, of its state and the rows of both ends, and one at each node."""

from __future__ import annotations

import torch
from torch import nn

from ..errors import UsageError, check_choice, check_integer
from ..spmm.operator.view import LayerView
from .layer import Layer

INNER = {"silu": nn.SiLU, "relu": nn.ReLU, "elu": nn.ELU, "gelu": nn.GELU, "tanh": nn.Tanh}


class EdgeEncoder(Layer):
    """E_ij = norm(act(e_ij W_1 + b_1) W_2 + b_2), e the attributes of the graph's edges; H stays as it is.

    Args: f_edge  attributes of an edge; f_in: width of H; hidden: width of E; act: silu, relu, elu, gelu or tanh.
    """

    operator, hops, is_random, carries_edges = "none", None, False, True

    def __init__(self, f_edge: int, f_in: int, hidden: int, act: str = "silu"):
        super().__init__(f_in, f_in)
        self.f_edge, self.hidden = f_edge, hidden
        self.mlp = _mlp(f_edge, hidden, hidden, act)

    def forward(
        self, A: LayerView, H_nF: torch.Tensor, E_EF: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return H and the states of edges, (E, hidden). Nothing is exchanged."""
        return H_nF, A.map_edges(self.mlp, attributes(A, self.f_edge), self.hidden)


class EdgeMLP(Layer):
    """E'_ij = E_ij + f([H_i, H_j, E_ij]), H'_i = H_i + g([H_i, sum_j E'_ij]); f, g: norm(act(x W_1 + b_1) W_2 + b_2).

    Args: f_in    width of H and of E, F.
          hidden  width of the inner products, None: F.
          act     silu, relu, elu, gelu or tanh.
    W_1 of f multiplies rows of nodes where it can: hidden columns of ghost rows travel, once each way. Backward computes
    both MLPs again, in chunks, so that a layer holds H, E and E' alone. Edges are those of A, without self-loops that
    are not in the graph.
    Source: Pfaff et al. 2021 (MeshGraphNets), eq. (1).
    """

    operator, hops, is_random, carries_edges = "none", None, False, True

    def __init__(self, f_in: int, hidden: int | None = None, act: str = "silu"):
        super().__init__(f_in, f_in)
        hidden = check_integer("hidden", f_in if hidden is None else hidden, 1)
        self.W, self.b = self.weight(3 * f_in, hidden), self.weight(hidden)
        self.edge = _mlp(hidden, hidden, f_in, act)[1:]  # its first product is W
        self.node = _mlp(2 * f_in, hidden, f_in, act)

    def forward(
        self, A: LayerView, H_nF: torch.Tensor, E_EF: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return H' (n, F) and E' (E, F). Collective."""
        return A.update_edges(self.edge, self.node, H_nF, states(self, E_EF), self.W, self.b)


class EdgeDecoder(Layer):
    """Z_ij = relu(H_i W_i + H_j W_j + E_ij W_e + b) W + b_o, a row for each edge: the last layer of a model of edges.

    Args: f_in  width of H and of E; f_out: numbers of an edge; hidden: columns of W_i, None: f_in.
    `hidden` columns of ghost rows travel, once each way.
    """

    operator, hops, is_random, carries_edges = "none", None, False, True

    def __init__(self, f_in: int, f_out: int, hidden: int | None = None):
        super().__init__(f_in, f_out)
        hidden = check_integer("hidden", f_in if hidden is None else hidden, 1)
        self.W_i, self.W_j, self.W_e = (self.weight(f_in, hidden) for _ in range(3))
        self.b, self.W, self.b_o = self.weight(hidden), self.weight(hidden, f_out), self.weight(f_out)

    def forward(
        self, A: LayerView, H_nF: torch.Tensor, E_EF: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return Z (E, C) in place of H, and E. Collective."""
        E_EF = states(self, E_EF)
        Z = torch.relu(A.on_edges(H_nF @ self.W_i + self.b, H_nF @ self.W_j, E_EF @ self.W_e))
        return Z @ self.W + self.b_o, E_EF


def attributes(A, f_edge: int) -> torch.Tensor:
    """Return the attributes of edges, (E, F_e). Raises: UsageError for another F_e than f_edge."""
    e_EF = A.edges
    if e_EF.shape[1] != f_edge:
        raise UsageError(f"edges have {e_EF.shape[1]} attributes, and the layer was made with f_edge = {f_edge}")
    return e_EF


def states(layer: Layer, E_EF: torch.Tensor | None) -> torch.Tensor:
    """Return the states of edges. Raises: UsageError where no layer has made them."""
    if E_EF is None:
        name = type(layer).__name__
        raise UsageError(f"{name} reads the states of edges: put an EdgeEncoder(f_edge, f_in, hidden) before it")
    return E_EF


def _mlp(f_in: int, hidden: int, f_out: int, act: str) -> nn.Sequential:
    """Return norm(act(x W_1 + b_1) W_2 + b_2)."""
    check_choice("act", act, tuple(INNER))
    return nn.Sequential(nn.Linear(f_in, hidden), INNER[act](), nn.Linear(hidden, f_out), nn.LayerNorm(f_out))
