"""Values of the arrays of a part: what a manifest does not say of them.

Shapes: n own nodes, g halo nodes, F features.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from ...errors import GraphError, PartitionError
from ...graph import task_of
from ...graph.checks import most_classes
from ...graph.edge_attr import checked_attributes, checked_edge_ids
from .blocks import Halo, RowBlock

VALUES_AT_A_TIME = 1 << 16  # rows of features


def check_values(part: Path, block: RowBlock | Halo, n_nodes: int, sums_n3: np.ndarray | None = None) -> None:
    """Raise PartitionError naming file and node if a feature, label, split or sum is invalid; reads all of them."""
    prefix, A, node_n = (
        ("halo_", block.A_gN, block.node_g) if isinstance(block, Halo) else ("", block.A_nN, block.own_n)
    )
    _check_no_zeros(part / f"{prefix}weights.npy", A, node_n)
    if isinstance(block, Halo):
        _check_finite(part / "halo_features.npy", block.X_gF, block.node_g, "a feature")
        sums_g2 = None if block.sums_g3 is None else block.sums_g3[:, :2]
        _check_finite(part / "halo_sums.npy", sums_g2, block.node_g, "a sum")
        return
    _check_finite(part / "features.npy", block.X_nF, block.own_n, "a feature")
    _check_finite(part / "sums.npy", None if sums_n3 is None else sums_n3[:, :2], block.own_n, "a sum")
    if block.edges is not None:
        _check_edges(part, block)
    low, high = (0, 1) if np.ndim(block.y_n) == 2 else (-1, most_classes(n_nodes))
    if task_of(block.y_n) == "numbers":
        low, high = np.finfo(block.y_n.dtype).min, np.finfo(block.y_n.dtype).max
    for name, values, low, high in (("labels", block.y_n, low, high), ("split", block.split_n, -1, 2)):
        bad = (values < low) | (values > high) if values is not None else np.zeros(0, bool)
        if bad.any():
            at = tuple(np.argwhere(bad)[0])
            raise PartitionError(f"{part / name}.npy: node {block.own_n[at[0]]} has {values[at]}, not {low} to {high}")


def _check_finite(path: Path, values_nF, node_n: np.ndarray, what: str) -> None:
    if values_nF is None or sp.issparse(values_nF):  # RowBlock and Halo have checked a CSR
        return
    for start in range(0, len(values_nF), VALUES_AT_A_TIME):
        is_finite = np.isfinite(values_nF[start : start + VALUES_AT_A_TIME]).all(1)
        if not is_finite.all():
            node = node_n[start + int(np.argmin(is_finite))]
            raise PartitionError(f"{path}: node {node} has {what} that is not finite; write the partition again")


def _check_edges(part: Path, block: RowBlock) -> None:
    edges = block.edges
    try:
        checked_attributes(edges.attr_EF, block.A_nN.nnz, str(part / "edge_attr.npy"))
        checked_edge_ids(edges.ids_E, block.A_nN.nnz, edges.n_listed)
    except GraphError as error:
        raise PartitionError(f"{part}: {error}; write the partition again") from None


def _check_no_zeros(path: Path, A: sp.csr_array | None, node_n: np.ndarray) -> None:
    if A is not None and not A.data.all():
        row = int(np.searchsorted(A.indptr, np.argmin(A.data != 0), side="right")) - 1
        raise PartitionError(f"{path}: node {node_n[row]} has an edge of weight 0, which is none; partition again")
