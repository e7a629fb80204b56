"""Row pruning: in a training step a layer computes only the rows that reach a labelled node.

Layer L gives the rows T_L of the training nodes; T_(l-1) = T_l and the columns of A[T_l], T_l alone for a local layer.
Shapes: n own rows, g ghost rows, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch

from ...config.names import Norm
from ...cost.pairs import edges_of_rows, with_whole_layers
from ..edges.edge_table import restrict_edges
from ..exchange.stages import Blocks
from .dist_spmm import DistSpMM, make_operator
from .facts import FixedInput, check_is_held
from .features import AnyRows
from .view import LayerView


def needed_rows(A: DistSpMM, train_n: np.ndarray, hops: Sequence[int]) -> list[np.ndarray]:
    """Return the masks T_0 ... T_L of the own rows, each (n,) bool, see with_whole_layers. Collective.

    Args: train_n (n,) bool, the rows of the loss, the same on all ranks of a process row.
          hops    of each layer, 0 or 1.
    """
    masks = [np.asarray(train_n, dtype=bool)]
    for of_layer in reversed(hops):
        masks.append(masks[-1] | _read_by(A, masks[-1]) if of_layer else masks[-1])
    edges_n = edges_of_rows(A.blocks.A_oo) + np.diff(A.blocks.A_og.indptr)
    return with_whole_layers(masks[::-1], hops, edges_n, A.comm.all_reduce)


def _read_by(A: DistSpMM, rows_n: np.ndarray) -> np.ndarray:
    """Return which own rows the rows of the mask read, on whichever rank they are."""
    marks_n1 = _columns(A.blocks.A_oo, rows_n)[:, None].astype(np.float32)
    if A.plan is not None:
        marks_g1 = _columns(A.blocks.A_og, rows_n)[:, None].astype(np.float32)
        marks_n1 = A.plan.push_add(torch.from_numpy(marks_g1), torch.from_numpy(marks_n1)).numpy()
    read_n = marks_n1.ravel() > 0
    return read_n if A.row_sum is None else A.row_sum.comm.all_reduce(read_n, "max")


def _columns(block, rows_n) -> np.ndarray:
    read = np.zeros(block.shape[1], bool)
    read[block.indices[np.repeat(rows_n, np.diff(block.indptr))]] = True
    return read


class PrunedSpMM:
    """The operators of one training step: A[T_l, T_(l-1)] for layer l, A itself where these are all rows. Layers get them by `at`.

    Args:   masks    of needed_rows; operators: DistSpMM of each layer, where they are not all A.
            hops     of each layer: one without hops has no columns of A.
            is_kept  layer 1 reads the cached A X: nothing changes X in training.
    X       the input of the model: T_0 of X, or all of X where A X is cached.
    """

    def __init__(
        self,
        A: DistSpMM,
        X,
        masks: list[np.ndarray],
        is_kept: bool,
        operators: list | None = None,
        hops: Sequence[int] | None = None,
    ):
        self.masks, self.full, self.is_kept = masks, A, is_kept
        operators, hops = operators or [A] * (len(masks) - 1), hops or [1] * (len(masks) - 1)
        self.pool, self.node_n, self.hops = A.pool, A.node_n, tuple(hops)
        whole = np.array([mask.all() for mask in masks], dtype=np.float64)
        A.comm.all_reduce(whole, "min")
        self.X = X if is_kept or whole[0] else _rows(X, masks[0])
        self.layers = [] if not is_kept else [operators[0] if whole[1] else self._kept_layer(operators[0], X, masks[1])]
        for A_l, out_n, in_n, of_layer in list(zip(operators, masks[1:], masks, hops))[len(self.layers) :]:
            number = len(self.layers) + 1
            if whole[number]:
                self.layers.append(A_l)
                continue
            name = f"{A_l.name} pruned {number}"
            layer = _restricted(A_l, out_n, in_n, name) if of_layer else _local(A_l, out_n, name)
            layer.set_selected(np.flatnonzero(out_n[in_n]))
            self.layers.append(layer)
        if not is_kept and A.fixed_input is not None and not whole[1]:  # its ghost rows are fetched once
            self.layers[0].fixed_input = FixedInput(self.X, has_products=torch.is_tensor(X))

    @property
    def dtype(self) -> torch.dtype:
        return self.full.dtype

    @property
    def device(self) -> torch.device:
        return self.full.device

    def at(self, layer: int, is_last: bool = False, operator: Norm | None = None, key=None) -> LayerView:
        """Return the operator of a layer; its normalisation was given at set-up."""
        return self.layers[layer - 1].at(layer, is_last, None, key)

    def prepare_adjoint(self, has_backward: Sequence[bool]) -> None:
        """Make the transposes of the layers whose backward multiplies with A."""
        for layer, is_asked in zip(self.layers, has_backward):
            if is_asked:
                layer.prepare_adjoint()

    def _kept_layer(self, A: DistSpMM, X: AnyRows, out_n: np.ndarray) -> DistSpMM:
        layer = copy(A)
        layer.set_selected(np.flatnonzero(out_n))
        layer.n = int(np.count_nonzero(out_n))
        if A.fixed_input is not None:
            A.fixed_input.make(A)
        layer.fixed_input = FixedInput(X)
        layer.fixed_input.products[A.name] = layer.select(A.kept)
        return layer


def _rows(X, mask: np.ndarray):
    check_is_held(X)
    chosen = np.flatnonzero(mask)
    return X.rows(chosen) if X.is_sparse else X[torch.from_numpy(chosen).to(X.device)]


def _restricted(A: DistSpMM, out_n: np.ndarray, in_n: np.ndarray, name: str) -> DistSpMM:
    """Return A[out, in] with its own plan. Collective."""
    if A.plan is None:
        ghost_g = np.zeros(0, bool)
    elif A.layout.scheme == "broadcast":  # all rows that layer l - 1 computes
        ghost_g = A.plan.pull(torch.from_numpy(in_n[:, None].astype(np.float32))).numpy().ravel() > 0
    else:
        ghost_g = _columns(A.blocks.A_og, out_n)
    restricted = make_operator(A.blocks.restricted(out_n, in_n, ghost_g), A.layout, name)
    restrict_edges(A, restricted, out_n, in_n, ghost_g)
    return restricted


def _local(A: DistSpMM, rows_n: np.ndarray, name: str) -> DistSpMM:
    """Return an operator on some rows that has no nonzeros: of a layer that does not multiply with A. Collective."""
    index, n = A.blocks.index, int(rows_n.sum())
    none = lambda m: sp.csr_array((n, m), dtype=A.blocks.A_oo.dtype)
    none_P = np.zeros_like(index.ghosts_P)
    index = replace(index, own_n=index.own_n[rows_n], ghost_g=index.ghost_g[:0], ghosts_P=none_P)
    return make_operator(Blocks(none(n), none(0), index), A.layout, name)
