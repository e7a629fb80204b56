"""Fields: many snapshots of numbers on the nodes or edges of one graph, of which each rank reads its own rows.

Shapes: S snapshots, B of a batch, N nodes, n own nodes, L edges of the list that was read, E nonzeros of this rank, F
inputs, C targets, r rows of a target: n, or E.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from ..data.readers.npz import read_npy
from ..errors import GraphError, ShapeError, UsageError, together
from ..graph import NO_SPLIT, TEST, TRAIN, ColumnNames
from ..spmm.kernels.buffers import sum_dtype
from ..spmm.operator.batched import Batched
from .distgraph import DistGraph

Snapshots = np.ndarray | torch.Tensor | Sequence[str | Path]


class Fields:
    """S snapshots on one graph: inputs X (S, N, F), and targets y (S, N, C), or of edges (S, L, C), as the input has them.

        fields = spgnn.Fields(dgraph, velocity[:-1], velocity[1:], split=[0, 0, 0, 1, 2])
        spgnn.train(model, fields, batch=2, loss="mse")

    Args:
        dgraph   of distribute; its own features and labels are not read.
        X, y     arrays, mapped ones too, or a list of S .npy files (N, F) and (N, C), which are mapped; each rank reads its
                 own rows of the snapshots of a step. NaN in y: no target.
        on       nodes; or edges: the model returns a row for each nonzero, as words of A have them. A reverse edge that
                 was added has the target of the edge it is made of, and counts, too.
        weights  (N,), 0 or more, how much a node counts in the loss and the scores, such as its area; 0: it does not.
        split    (S,) 0 train, 1 val, 2 test, -1 none, of the snapshots; None: all train.
    Raises: ShapeError for shapes that do not fit the graph; GraphError for inputs that are not finite. Collective.
    """

    def __init__(
        self,
        dgraph: DistGraph,
        X: Snapshots,
        y: Snapshots,
        on: Literal["nodes", "edges"] = "nodes",
        weights: np.ndarray | None = None,
        split: Sequence[int] | None = None,
    ):
        if not isinstance(dgraph, DistGraph):
            raise UsageError(f"Fields got a {type(dgraph).__name__}; expected Fields(distribute(graph), X, y)")
        if on not in ("nodes", "edges"):
            raise UsageError(f"on = {on!r}; expected nodes or edges")
        if dgraph.replication > 1 or {wire.name for wire in dgraph.A.layout.wires} != {"float32"}:
            raise UsageError("Fields need replication = 1 and wires of float32; distribute the graph so")
        self.dgraph, self.on = dgraph, on
        self._X, self._y = (_opened(name, of) for name, of in (("X", X), ("y", y)))
        rows = dgraph.n_nodes if on == "nodes" else together(dgraph.comm, lambda: dgraph._edges("Fields").n_listed)
        together(dgraph.comm, self._check, rows)
        self.split_S = np.full(len(self._X), TRAIN, np.int8) if split is None else np.asarray(split, np.int8)
        self.weight_n = together(dgraph.comm, self._weights, weights)

    def __len__(self) -> int:
        """S."""
        return len(self._X)

    def __repr__(self) -> str:
        return f"Fields({len(self)} snapshots on {self.dgraph.name}: {self.n_features} numbers of a node -> {self.n_targets} of {self.on})"

    @property
    def n_features(self) -> int:
        """F."""
        return self._X[0].shape[1]

    @property
    def n_targets(self) -> int:
        """C."""
        return self._y[0].shape[1]

    def first(self) -> DistGraph:
        """Return the graph with the first snapshot as features and targets, as a Trainer looks at it."""
        y_n = self.targets(0)
        return replace(
            self.dgraph,
            X=self.inputs(0),
            y_n=y_n,
            split_n=None,
            n_classes=self.n_targets,
            task="numbers",
            names=ColumnNames(),
        )

    def inputs(self, s: int) -> torch.Tensor:
        """Return X of the own nodes in a snapshot, (n, F). Raises: GraphError where a number is not finite."""
        X_nF = np.asarray(self._X[s][self.dgraph.node_n])
        if not np.isfinite(X_nF).all():
            row = int(np.argwhere(~np.isfinite(X_nF))[0][0])
            raise GraphError(f"X: node {self.dgraph.node_n[row]} of snapshot {s} is not finite; expected numbers")
        return torch.from_numpy(X_nF).to(self.dgraph.A.device, self.dgraph.A.dtype)

    def targets(self, s: int) -> torch.Tensor:
        """Return y of the own rows in a snapshot, (r, C), in the type of sums."""
        rows = self._y[s][self.dgraph.node_n] if self.on == "nodes" else self.dgraph.edge_rows(self._y[s])
        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.dgraph.A.device, sum_dtype(self.dgraph.A.dtype))

    def batch(self, snapshots: Sequence[int]) -> torch.Tensor:
        """Return X of B snapshots as Batched(A, B) reads it, (n B, F)."""
        X_nBF = torch.stack([self.inputs(s) for s in snapshots], dim=1)
        return X_nBF.reshape(-1, self.n_features)

    def of_batch(self, A: Batched, Z: torch.Tensor) -> torch.Tensor:
        """Return what a model makes of B snapshots, (n B, C) or (E B, C), of each: (B, r, C)."""
        if self.on == "edges":
            return A.with_norm("none").of_edges(Z)
        return Z.reshape(-1, A.B, Z.shape[1]).transpose(0, 1)

    def collect(self, values_r: np.ndarray) -> np.ndarray:
        """Return the rows of all ranks in the order of the input, (N, ...) or (L, ...). Collective."""
        return self.dgraph.collect(values_r) if self.on == "nodes" else self.dgraph.collect_edges(values_r)

    def _check(self, rows: int) -> None:
        S, N = len(self._X), self.dgraph.n_nodes
        if len(self._y) != S or not S:
            raise ShapeError(f"X has {S} snapshots and y {len(self._y)}; expected as many, and one or more")
        for name, of, expected in (("X", self._X, N), ("y", self._y, rows)):
            shape = expected, of[0].shape[-1]
            for s, snapshot in enumerate(of):
                if snapshot.shape != shape or snapshot.dtype.kind not in "fiub":
                    found = f"{snapshot.dtype} of shape {snapshot.shape}"
                    raise ShapeError(f"{name}: snapshot {s} is {found}; expected numbers of shape {shape}")

    def _weights(self, weights: np.ndarray | None) -> torch.Tensor | None:
        split_S, expected = self.split_S, f"{len(self)} of 0 train, 1 val, 2 test, -1 none, with a 0"
        is_known = split_S.shape == (len(self),) and ((NO_SPLIT <= split_S) & (split_S <= TEST)).all()
        if not is_known or not (split_S == TRAIN).any():
            raise UsageError(f"split = {split_S.tolist()}; expected {expected}")
        if weights is None:
            return None
        weights = np.asarray(weights, np.float64)
        if self.on == "edges" or weights.shape != (self.dgraph.n_nodes,):
            raise ShapeError(f"weights have shape {weights.shape}; expected one for each node, of targets on nodes")
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise UsageError("weights must be finite, and 0 or more")
        return torch.from_numpy(weights[self.dgraph.node_n]).to(self.dgraph.A.device)


def _opened(name: str, snapshots: Snapshots):
    """Return a sequence of arrays of two axes, those of files mapped."""
    if torch.is_tensor(snapshots):
        snapshots = snapshots.detach().cpu().numpy()
    if isinstance(snapshots, np.ndarray):
        if snapshots.ndim != 3:
            raise ShapeError(f"{name} has shape {snapshots.shape}; expected (snapshots, rows, columns)")
        return snapshots
    return [
        read_npy(Path(path), mmap=True) if isinstance(path, (str, Path)) else np.asarray(path) for path in snapshots
    ]
