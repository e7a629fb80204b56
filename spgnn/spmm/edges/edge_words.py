"""Words of A for messages on edges: what a layer reads, makes and sums at the nonzeros of A. LayerView has them as methods.

A row of an array (E, F) belongs to a nonzero of this rank's rows: those of own columns in the order of the CSR, then
those of ghost columns. A rank has all nonzeros of its rows, so sums over a row are exact; in 1.5D a process row adds
up those of its ranks. V is own rows (m, F), whose ghost rows are exchanged once in the pass over the nonzeros, or
ColumnRows of `fetch` or `linear`, which may serve several words. Arrays (E, F) have the type of sums.
Shapes: n rows out, m own rows in, t own and ghost columns, E nonzeros, F columns, K heads of width D, heads innermost.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from ...errors import ShapeError, UsageError, check_integer
from ..chains.autograd import Columns
from ..exchange.cached_ghosts import cached_ghosts
from ..exchange.column_rows import ColumnRows, refuse_weights, tensor_of
from ..operator.facts import AtLayer, check_is_held
from .edge_update import MapRows, UpdateEdges
from .edges import Deviation, Dots, Largest, OnEdges, RowSoftmax, RowSums, WeightedSum

Source = torch.Tensor | ColumnRows  # rows of columns: own rows, or those of own and ghost columns


def edges(A: AtLayer) -> torch.Tensor:
    """E_ij, the attributes of the graph's edges at the nonzeros, (E, F_e).

    Raises: UsageError where the graph has none.
    """
    if A.edge_attr is None:
        raise UsageError(
            "A.edges needs a graph with attributes of edges, and this one has none: make it by "
            "graph_from_coo(..., edge_attr=E_EF) or spgnn convert --edge-features"
        )
    return A.edge_attr


def fetch(A: AtLayer, H_mF: torch.Tensor) -> ColumnRows:
    """Return the rows of own columns, then those of ghost columns, (t, F): fetched once for several words. Collective.

    Cached ghost rows of the fixed input are not fetched again. In 1.5D the ghosts come from the process column, and
    own columns are multiplied on the rank of the process row that holds them.
    """
    ghosts_gF = _ghosts(A, "fetch", H_mF)
    return ColumnRows(Columns.apply(A, H_mF) if ghosts_gF is None else torch.cat([H_mF, ghosts_gF]))


def rows(A: AtLayer, U_mF: torch.Tensor) -> torch.Tensor:
    """U_i for each nonzero (i, j), (E, F)."""
    _check_rows("U", U_mF, A)
    return OnEdges.apply(A, A.select(U_mF), None, None, False, None)


def cols(A: AtLayer, V: Source) -> torch.Tensor:
    """V_j for each nonzero (i, j), (E, F). Collective."""
    return OnEdges.apply(A, None, *source_of(A, "cols", V), None)


def on_edges(A: AtLayer, U_mC: torch.Tensor, V: Source, add_EC: torch.Tensor | None = None) -> torch.Tensor:
    """U_i + V_j + add_ij for each nonzero, (E, C). Collective.

    W [H_i, H_j, E_ij] is on_edges(H W_1, H W_2, E W_3), with products by rows of nodes, and C columns that travel.
    """
    _check_rows("U", U_mC, A)
    of_V = source_of(A, "on_edges", V)
    C = U_mC.shape[1]
    if of_V[0].shape[1] != C:
        raise ShapeError(f"A.on_edges: U has {C} columns and V {of_V[0].shape[1]}; expected as many")
    if add_EC is not None:
        _check_values("add", add_EC, A)
        if add_EC.shape[1] != C:
            raise ShapeError(f"A.on_edges: add has {add_EC.shape[1]} columns and U {C}; expected as many")
    return OnEdges.apply(A, A.select(U_mC), *of_V, add_EC)


def dot(A: AtLayer, U_mKD: torch.Tensor, V: Source, heads: int = 1) -> torch.Tensor:
    """<U_i, V_j> of each head for each nonzero, (E, K). Collective."""
    check_integer("heads", heads, 1)
    _check_rows("U", U_mKD, A)
    of_V = source_of(A, "dot", V)
    if of_V[0].shape[1] != U_mKD.shape[1] or U_mKD.shape[1] % heads:
        raise ShapeError(
            f"A.dot: U has {U_mKD.shape[1]} columns and V {of_V[0].shape[1]}; expected as many, a multiple of {heads} heads"
        )
    return Dots.apply(A, A.select(U_mKD), *of_V, heads)


def sum_(A: AtLayer, M_EF: torch.Tensor, V: Source | None = None) -> torch.Tensor:
    """sum_j M_ij over the nonzeros of each row, (n, F); with V sum_j S_ij V_j of each head, (n, K D), S = M (E, K).

    Nothing of the size (E, K D) is made. Collective with V, and in 1.5D.
    """
    _check_values("M", M_EF, A)
    if V is None:
        return RowSums.apply(A, M_EF, False)
    of_V, K = source_of(A, "sum", V), M_EF.shape[1]
    if K < 1 or of_V[0].shape[1] % K:
        raise ShapeError(f"A.sum: V has {of_V[0].shape[1]} columns; expected a multiple of the K = {K} heads of S")
    return WeightedSum.apply(A, M_EF, *of_V)


def mean(A: AtLayer, M_EF: torch.Tensor) -> torch.Tensor:
    """sum_j M_ij divided by the number of nonzeros of the row, (n, F); 0 for an empty row. Collective in 1.5D."""
    _check_values("M", M_EF, A)
    return RowSums.apply(A, M_EF, True)


def max_(A: AtLayer, M_EF: torch.Tensor) -> torch.Tensor:
    """max_j M_ij over the nonzeros of each row, for each column, (n, F); 0 for an empty row. Collective in 1.5D.

    Of equal ones the nonzero whose column has the smallest original id has the gradient, of several edges between two
    nodes the first: it does not depend on parts. NaN is larger than all numbers.
    """
    _check_values("M", M_EF, A)
    return Largest.apply(A, M_EF, 1)


def min_(A: AtLayer, M_EF: torch.Tensor) -> torch.Tensor:
    """min_j M_ij over the nonzeros of each row, (n, F); empty rows, equal ones and NaN as in `max`. Collective in 1.5D."""
    _check_values("M", M_EF, A)
    return Largest.apply(A, M_EF, -1)


def std(A: AtLayer, M_EF: torch.Tensor) -> torch.Tensor:
    """sqrt(mean_j (M_ij - mean_i)^2) over the nonzeros of each row, (n, F); 0 for an empty row. Collective in 1.5D.

    A deviation within the rounding of the mean is 0, and its gradient too.
    """
    _check_values("M", M_EF, A)
    return Deviation.apply(A, M_EF)


def softmax(A: AtLayer, S_EK: torch.Tensor) -> torch.Tensor:
    """exp(S_ij) / sum_j exp(S_ij) over the nonzeros of each row, (E, K). Collective in 1.5D."""
    _check_values("S", S_EK, A)
    return RowSoftmax.apply(A, S_EK)


def map_edges(A: AtLayer, f: nn.Module, M_EF: torch.Tensor, f_out: int) -> torch.Tensor:
    """f(M_ij) for each nonzero, (E, f_out), in chunks that backward computes again: of f's steps none is held.

    Args: f  a module that makes a row of its result from the same row of its input, without chance.
    """
    _check_values("M", M_EF, A)
    return MapRows.apply(A, f, M_EF, f_out, *f.parameters())


def update_edges(
    A: AtLayer, f: nn.Module, g: nn.Module, H_nF: torch.Tensor, E_EF: torch.Tensor, W: torch.Tensor, b_C: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """E'_ij = E_ij + f([H_i, H_j, E_ij] W + b), H'_i = H_i + g([H_i, sum_j E'_ij]); returns (H', E'). Collective.

    Computed in chunks, and again in backward, which holds H, E and E' alone. C columns of W travel, once each way.
    Args: f, g  modules that make a row of their result from the same row of their input, without chance.
          W     (F + F + F, C), f: (E, C) -> (E, F), g: (n, 2 F) -> (n, F).
    """
    _check_values("E", E_EF, A)
    _check_rows("H", H_nF, A)
    if A.row_sum is not None:
        raise UsageError("A.update_edges needs all edges of a row on its rank: use replication = 1")
    if len(W) != 2 * H_nF.shape[1] + E_EF.shape[1]:
        raise ShapeError(f"W has {len(W)} rows; expected {2 * H_nF.shape[1] + E_EF.shape[1]}, for [H_i, H_j, E_ij]")
    return UpdateEdges.apply(A, (f, g), H_nF, E_EF, W, b_C, *f.parameters(), *g.parameters())


def local_graph(A: AtLayer, H_mF: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return (x_tF, edge_index_2E, edge_attr), what a convolution of PyG takes. Collective.

    x has own rows, then ghost rows. edge_index[0] is the column j (the source) of each nonzero, edge_index[1] its row i,
    as rows of x. edge_attr is A.edges, None where the graph has none. Rows of the result behind the first m are not of
    this rank; A.select gives those that belong to rows of A H.
    """
    if A.row_sum is not None:
        raise UsageError("A.local_graph needs all edges of a row on its rank: use replication = 1")
    return fetch(A, H_mF).tensor, A.edge_index, A.edge_attr


def source_of(A: AtLayer, word: str, V: Source) -> tuple[torch.Tensor, torch.Tensor | None, bool]:
    """Return V as a tensor, its ghost rows where they are cached, and whether it has the rows of all columns."""
    if isinstance(V, ColumnRows):
        return tensor_of(A, V), None, True
    ghosts_gF = _ghosts(A, word, V)
    _check_rows("V", V, A)
    return V, ghosts_gF, False


def _ghosts(A: AtLayer, word: str, V: Source) -> torch.Tensor | None:
    if not torch.is_tensor(V):
        raise UsageError(f"A.{word} reads dense rows, but X is sparse: give it H @ W")
    check_is_held(V)
    return cast("torch.Tensor | None", cached_ghosts(A, V))  # of a tensor a tensor


def _check_rows(name: str, U: torch.Tensor, A: AtLayer) -> None:
    if U.ndim != 2 or len(U) != A.m:
        raise ShapeError(f"{name} has shape {tuple(U.shape)}; expected ({A.m}, F), one row per own node")


def _check_values(name: str, M: torch.Tensor, A: AtLayer) -> None:
    """Raise ShapeError unless M is (E, F), and UsageError in 1.5D where weights acted on it."""
    if M.ndim != 2 or len(M) != A.n_edges:
        raise ShapeError(
            f"{name} has shape {tuple(M.shape)}; expected ({A.n_edges}, F), one row per nonzero: A.n_edges"
        )
    refuse_weights(A, M)
