"""NodeRows: features, labels and loss weights of the nodes of subgraphs.

Shapes: N nodes, m input rows of a subgraph, n output rows, F features, C classes.
"""

from __future__ import annotations

import numpy as np
import torch

from ...distgraph import DistGraph
from ...distgraph.assemble import features
from ...graph import Graph
from ...samplers import Subgraph
from ...spmm.kernels.buffers import BufferPool, sum_dtype
from ...spmm.operator.feature_rows import FeatureRows


class NodeRows:
    """Features and labels of all nodes of a graph, of which a subgraph reads some.

    Args: graph  the graph of dgraph; its features may be mapped from a file.
          y_N    labels in original order.
    node_N  original ids of the nodes from which subgraphs are drawn; None: all, by id.
    """

    def __init__(self, dgraph: DistGraph, graph: Graph, y_N: np.ndarray, node_N: np.ndarray | None):
        self.dgraph, self.X, self.y_N, self.node_N = dgraph, graph.X, y_N, node_N
        is_plain = graph.X.dtype.kind == "f" and dgraph.feature_norm == "none"
        self._rows = FeatureRows(graph.X, dgraph.A.dtype, dgraph.A.threads) if is_plain else None

    def original(self, node_m: np.ndarray) -> np.ndarray:
        """Return original ids of nodes of the graph that subgraphs are drawn from."""
        return node_m if self.node_N is None else self.node_N[node_m]

    def features(self, node_m: np.ndarray, pool: BufferPool):
        """Return the features of nodes, (m, F), as a layer reads them, in memory of a pool."""
        A, ids_m = self.dgraph.A, self.original(node_m)
        with A.ops.span("features"):
            if self._rows is not None:
                return self._rows.take(ids_m, pool)
            return features(self.X[ids_m], self.dgraph.feature_norm, pool, A.dtype, A.threads)

    def targets(self, subgraph: Subgraph) -> tuple[torch.Tensor, torch.Tensor]:
        """Return labels (n,), -1 but for targets, or (n, C), and the loss weights (n,) of the output rows."""
        n, rows_t = subgraph.shapes[-1][0], subgraph.target_t
        ids_n = self.original(subgraph.node_m[:n])
        dtype = sum_dtype(self.dgraph.A.dtype)
        weight_n = torch.zeros(n, dtype=dtype)
        weight_n[rows_t] = torch.from_numpy(subgraph.weight_t).to(dtype)
        if self.dgraph.task != "classes":
            return torch.from_numpy(self.y_N[ids_n]).to(dtype), weight_n
        y_n = np.full(n, -1, np.int64)
        y_n[rows_t] = self.y_N[ids_n[rows_t]]
        return torch.from_numpy(y_n), weight_n
