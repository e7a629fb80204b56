"""Targets: the batches of training nodes of an epoch, all of them or a class-balanced part.

Shapes: N nodes, T training nodes.
"""

from __future__ import annotations

import threading

import numpy as np

from ..errors import GraphError, ShapeError, UsageError, check_integer, is_number
from ..graph import Graph, check_is_graph, labelled, task_of
from . import _samplers
from .graph_arrays import GraphArrays, graph_arrays

CHOICE, SHUFFLE = 8, 9  # streams of a seed: which nodes a mini-epoch has, and their order


class Targets:
    """Batches of an epoch's training nodes in a random order; each node once per epoch.

    With class_balance = f > 0, an epoch, a mini-epoch of the paper, has ceil(f T) of the T training nodes, drawn without
    replacement in proportion to ||A_hat(:, v)||^2 / CF(class of v): A_hat is the gcn operator, CF the number of
    training nodes of a class. Weighted drawing without replacement: the smallest exponential keys -ln(u_v) / w_v.

    Args:   train_N        (N,) bool, the nodes that train; None: the labelled training nodes of the first split.
            batch          targets of a draw; the last one of an epoch may have fewer.
            class_balance  f, 0 to 1; 0: all training nodes.
    Raises: UsageError for values out of range and for class_balance without classes; GraphError without training nodes.
    Source: entropy-aware training (class-balanced sampler), eq. (3). It prints A_hat = D^-1/2 A D^1/2; the exponent of
            the second D lacks its sign, as A_hat is the normalised adjacency. Efraimidis & Spirakis 2006 for the keys.

    Thread-safe. The order is a function of (seed, epoch) and the training nodes.
    """

    def __init__(
        self,
        graph: Graph | GraphArrays,
        train_N: np.ndarray | None = None,
        batch: int = 512,
        class_balance: float = 0.0,
        arrays: GraphArrays | None = None,
    ):
        self.batch = check_integer("batch", batch, 1)
        if not is_number(class_balance) or not 0 <= class_balance <= 1:
            raise UsageError(
                f"class_balance = {class_balance!r}; expected a number of 0 to 1, 0 for all training nodes"
            )
        self.node_T = np.flatnonzero(_training_nodes(graph, train_N))
        if not len(self.node_T):
            raise GraphError(f"{graph.name} has no training node with a label; give it a split with some")
        self._weight_T, self.per_epoch = None, len(self.node_T)
        if class_balance:
            self._weight_T = balancing_weights(graph, arrays or graph_arrays(graph), self.node_T)
            self.per_epoch = max(1, int(np.ceil(class_balance * len(self.node_T) - 1e-9)))
        self.steps_per_epoch = -(-self.per_epoch // self.batch)
        self._lock, self._orders = threading.Lock(), {}

    def draw(self, seed: int, index: int) -> np.ndarray:
        """Return batch number index, ascending ids, (at most batch,) int64."""
        epoch, step = divmod(index, self.steps_per_epoch)
        return np.sort(self.order(seed, epoch)[step * self.batch : (step + 1) * self.batch])

    def order(self, seed: int, epoch: int) -> np.ndarray:
        """Return the nodes of an epoch in the order in which they are used."""
        with self._lock:
            found = self._orders.get((seed, epoch))
        if found is None:
            node_t = self.chosen(seed, epoch)
            found = node_t[np.argsort(_samplers.node_numbers(seed, SHUFFLE, epoch, node_t), kind="stable")]
            with self._lock:
                if len(self._orders) >= 4:  # pools draw ahead into the next epoch, and two seeds at a time
                    self._orders.pop(next(iter(self._orders)))
                self._orders[seed, epoch] = found
        return found

    def chosen(self, seed: int, epoch: int) -> np.ndarray:
        """Return the nodes of an epoch, the first drawn one first, or all training nodes."""
        if self._weight_T is None:
            return self.node_T
        bits_T = _samplers.node_numbers(seed, CHOICE, epoch, self.node_T)
        u_T = ((bits_T >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        key_T = np.full(len(u_T), np.inf)
        np.divide(-np.log(u_T), self._weight_T, out=key_T, where=self._weight_T > 0)
        return self.node_T[np.argsort(key_T, kind="stable")[: self.per_epoch]]


def balancing_weights(graph: Graph | GraphArrays, arrays: GraphArrays, node_T: np.ndarray) -> np.ndarray:
    """||A_hat(:, v)||^2 / CF(class of v) of training nodes, (T,) float64.

    Raises: UsageError for a graph without labels or with several a node.
    """
    y = getattr(graph, "y", None)
    if y is None or task_of(y) != "classes" or (y[node_T] < 0).any():
        raise UsageError(
            f"class_balance needs one class for each training node, which {graph.name} lacks; use class_balance = 0"
        )
    y_T = y[node_T]
    return arrays.column_norms()[node_T] / np.bincount(y_T)[y_T]


def _training_nodes(graph: Graph | GraphArrays, train_N: np.ndarray | None) -> np.ndarray:
    if train_N is None:
        check_is_graph(graph)
        assert isinstance(graph, Graph)
        has_label_N = labelled(graph.y) if graph.y is not None else np.ones(graph.n_nodes, bool)
        return (graph.split_N(0) == 0) & has_label_N
    N = graph.N if isinstance(graph, GraphArrays) else graph.n_nodes
    train_N = np.asarray(train_N)
    if train_N.dtype != bool or train_N.shape != (N,):
        raise ShapeError(f"train_N is {train_N.dtype} of shape {train_N.shape}; expected bool ({N},)")
    return train_N
