"""Decoders: the score of a link of two nodes, of their rows Z and of its relation.

Shapes: p pairs, q queries, m candidates, F columns, R relations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..config.fields import Registry
from ..errors import UsageError, check_integer
from ..spmm.kernels import _kernels


class RowsOf(torch.autograd.Function):
    """W[index]; dW[index] += dH, in the order of the index."""

    @staticmethod
    def forward(ctx: Any, W_RF: torch.Tensor, index_p: torch.Tensor) -> torch.Tensor:
        """Return the rows (p, F)."""
        ctx.index_p, ctx.shape = index_p, W_RF.shape
        return W_RF[index_p]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor):
        """Return dW: torch would sort the index."""
        (G_pF,) = gradients
        dW_RF = G_pF.new_zeros(ctx.shape)
        _kernels.add_rows(G_pF.contiguous().numpy(), ctx.index_p.long().numpy(), dW_RF.numpy(), torch.get_num_threads())
        return dW_RF, None


def rows_of(W_RF: torch.Tensor, relation_p: torch.Tensor) -> torch.Tensor:
    """Return the row of each relation, (p, F)."""
    return RowsOf.apply(W_RF, relation_p)  # pyrefly: ignore[bad-return]


class Decoder(nn.Module):
    """A score s(h, r, t) = <x, Z_t>, where x is what `query` makes of Z_h and r: then ranks are counted by one kernel.

    A decoder of your own is a class with `query` for both directions, and __init__(F, n_relations); see CONTRIBUTING.

    Args: F  columns of Z; n_relations: R, 1 without relations.
    """

    reads_relations = False
    is_product = True  # the score of a candidate is <x, Z_j>

    def __init__(self, F: int, n_relations: int = 1):
        check_integer("F", F, 1)
        check_integer("n_relations", n_relations, 1)
        super().__init__()
        self.F, self.n_relations = F, n_relations

    def query(self, Z_qF: torch.Tensor, relation_q: torch.Tensor, is_reversed: bool = False) -> torch.Tensor:
        """Return x (q, F) of the rows of h; is_reversed: of the rows of t, for (?, r, t)."""
        return Z_qF

    def score(self, H_pF: torch.Tensor, T_pF: torch.Tensor, relation_p: torch.Tensor) -> torch.Tensor:
        """Return the scores of pairs (p,), whose rows are given."""
        return (self.query(H_pF, relation_p) * T_pF).sum(1)

    def extra_repr(self) -> str:
        return f"{self.F}, n_relations={self.n_relations}"

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the weights, from the generator of the model."""
        for weight in self.parameters():
            with torch.no_grad():
                weight.copy_(torch.empty(weight.shape).normal_(generator=generator))


class Dot(Decoder):
    """s = <h, t>, without weights: of links without relations."""


class DistMult(Decoder):
    """s = <h, w_r, t> = sum_c h_c w_rc t_c. Source: Yang et al. 2015, section 3.1."""

    reads_relations = True

    def __init__(self, F: int, n_relations: int = 1):
        super().__init__(F, n_relations)
        self.W_RF = nn.Parameter(torch.ones(n_relations, F))

    def query(self, Z_qF, relation_q, is_reversed=False):
        """Return h w_r, or t w_r, entry by entry."""
        return Z_qF * rows_of(self.W_RF, relation_q)


class ComplEx(Decoder):
    """s = Re <h, w_r, conj(t)>; the first half of the columns is real, the second imaginary. F is even.

    Source: Trouillon et al. 2016, eq. (9).
    """

    reads_relations = True

    def __init__(self, F: int, n_relations: int = 1):
        super().__init__(F, n_relations)
        if F % 2:
            raise UsageError(f"decoder complex reads pairs of columns, and the rows have {F}; give an even width")
        self.W_RF = nn.Parameter(torch.ones(n_relations, F))

    def query(self, Z_qF, relation_q, is_reversed=False):
        """Return h w_r, or conj(w_r) t, as complex numbers."""
        (a, b), (u, v) = Z_qF.chunk(2, dim=1), rows_of(self.W_RF, relation_q).chunk(2, dim=1)
        if is_reversed:
            return torch.cat([a * u + b * v, b * u - a * v], dim=1)
        return torch.cat([a * u - b * v, a * v + b * u], dim=1)


class MLPScore(Decoder):
    """s = <w, relu(P h + Q t + b_r)>: two dense layers on both rows; b_r has a row for each relation."""

    reads_relations = True
    is_product = False

    def __init__(self, F: int, n_relations: int = 1):
        super().__init__(F, n_relations)
        self.P_FF, self.Q_FF = nn.Parameter(torch.eye(F)), nn.Parameter(torch.eye(F))
        self.b_RF, self.w_F = nn.Parameter(torch.zeros(n_relations, F)), nn.Parameter(torch.ones(F))

    def initialise(self, generator: torch.Generator) -> None:
        """Matrices as of a dense layer, U(-a, a), a = sqrt(3 / F); w alike; b is 0."""
        bound = (3 / self.F) ** 0.5
        with torch.no_grad():
            for W in (self.P_FF, self.Q_FF, self.w_F):
                W.copy_(torch.empty(W.shape).uniform_(-bound, bound, generator=generator))
            self.b_RF.zero_()

    def query(self, Z_qF, relation_q, is_reversed=False):
        """Return P h + b_r, or Q t + b_r."""
        return Z_qF @ (self.Q_FF if is_reversed else self.P_FF) + rows_of(self.b_RF, relation_q)

    def score(self, H_pF, T_pF, relation_p):
        """Return <w, relu(P h + Q t + b_r)> of each pair."""
        return torch.relu(self.query(H_pF, relation_p) + T_pF @ self.Q_FF) @ self.w_F


DECODERS: Registry[type[Decoder]] = Registry(
    "decoder", ("dot", "distmult", "complex", "mlp"), "DECODERS['mine'] = Mine of spgnn.layers.decoders"
)
DECODERS |= {"dot": Dot, "distmult": DistMult, "complex": ComplEx, "mlp": MLPScore}


def decoder_of(model: nn.Module, F: int, n_relations: int) -> Decoder:
    """Return model.decoder, or a Dot where a model has none. Raises: UsageError where it does not fit the links."""
    found: Any = getattr(model, "decoder", None) or Dot(F, n_relations)
    if (found.F, found.n_relations) != (F, n_relations) and found.reads_relations:
        raise UsageError(
            f"the decoder {type(found).__name__} reads {found.F} columns and {found.n_relations} relations; the model "
            f"returns {F}, and the links have {n_relations}"
        )
    if n_relations > 1 and not found.reads_relations:
        raise UsageError(
            f"the links have {n_relations} relations, which {type(found).__name__} does not read; give a decoder that does: "
            "distmult, complex or mlp"
        )
    return found
