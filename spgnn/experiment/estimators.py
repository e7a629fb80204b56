"""Estimators of scikit-learn on a graph: NodeClassifier and NodeRegressor, built on `train` and `predict`.

Shapes: N nodes, F features, C classes or columns of numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from ..config import Distribution, TrainConfig, Training, build
from ..data import load_graph
from ..distgraph import DistGraph, distribute
from ..errors import ResourceError
from ..graph import Graph
from ..layers.registry import ModelSpec, operator_of
from .fit import train
from .predictions import Predictions, predict

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.metrics import accuracy_score, r2_score
    from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise ResourceError("NodeClassifier needs scikit-learn 1.6 or later: pip install 'spgnn[sklearn]'") from None


class NodeEstimator(BaseEstimator):
    """What both estimators share: parameters, which are options of `spgnn train`, the graph of X and A, and the training.

    Args:   model, hidden, dropout  of the model.
            epochs, lr              of the training on all nodes with a label; the last epoch counts.
            options                 a dict of further options, such as layers, weight_decay and edges; None: no more.
            random_state            the seed of weights and dropout: an integer, a RandomState, or None.
    """

    def __init__(self, model="gcn", *, hidden=64, dropout=0.5, epochs=100, lr=0.01, options=None, random_state=0):
        self.model, self.hidden, self.dropout = model, hidden, dropout
        self.epochs, self.lr, self.options, self.random_state = epochs, lr, options, random_state

    def _fit(self, X_NF, A, y_N: np.ndarray, is_train_N: np.ndarray, C: int) -> Self:
        graph = self._graph(X_NF, A)
        if not is_train_N.any():
            raise ValueError("y has no label; expected some that are neither -1 nor NaN")
        graph = replace(graph, y=y_N, classes=None, split=np.where(is_train_N, 0, -1).astype(np.int8))
        config, given = self._config(), self._given()
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        self.model_ = ModelSpec.of(config, graph.n_features, C, graph).build()
        how = {name: value for name, value in given.items() if name in Training.__dataclass_fields__}
        how |= {"seed": int(seed), "split": "given", "progress": False}
        self.history_ = train(self.model_, self._distributed(graph, str(X_NF.dtype)), **how)
        return self

    def _given(self) -> dict[str, Any]:
        names = ("model", "hidden", "dropout", "epochs", "lr")
        return {name: getattr(self, name) for name in names} | (self.options or {})

    def _config(self) -> TrainConfig:
        return build(TrainConfig, self._given(), type(self).__name__)

    def _graph(self, X_NF, A) -> Graph:
        """Return the graph of A, anything that load_graph takes, with features X; None: without edges."""
        n = X_NF.shape[0]
        graph = Graph(sp.csr_array((n, n), dtype=np.float32)) if A is None else load_graph(A)
        if graph.n_nodes != n:
            raise ValueError(f"A has {graph.n_nodes} nodes, X has {n} rows; expected a node for each row")
        X_NF = sp.csr_array(X_NF) if sp.issparse(X_NF) else X_NF
        graph = replace(graph, X=X_NF, feature_names=None, y=None, split=None)
        return graph.with_edges(self._config().edges) if graph.edges == "stored" else graph

    def _distributed(self, graph: Graph, dtype: str) -> DistGraph:
        given, of_graph = self._given(), set(Distribution.__dataclass_fields__) - {"seed"}
        how = {name: value for name, value in given.items() if name in of_graph}
        return distribute(graph, **({"operator": operator_of(self._config()), "dtype": dtype} | how))

    def _checked(self, X, reset: bool) -> Any:
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)

    def _predicted(self, X, A) -> Predictions:
        check_is_fitted(self)
        graph = self._graph(self._checked(X, False), A)
        return predict(self.model_, self._distributed(graph, str(next(self.model_.parameters()).dtype)))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.target_tags.required = True
        return tags


class NodeClassifier(ClassifierMixin, NodeEstimator):
    """The class of each node, learned from the labels of some: a row of X is a node, and A has the edges.

        clf = spgnn.NodeClassifier(hidden=16).fit(X, y, A)  # y is -1 where a node has no label
        clf.score(X, y_all, A)

    Parameters are those of NodeEstimator. After fit: classes_ (C,), model_, a Stack, and history_.
    """

    def fit(self, X, y, A=None) -> Self:
        """Train on the nodes whose y is neither -1 nor NaN nor None.

        Args:   X (N, F) dense or CSR; y (N,) of numbers or text; A anything that load_graph takes, such as a SciPy matrix (N, N),
                or None: no edges.
        Raises: ValueError where they do not fit each other, and where y has fewer than two classes.
        """
        X_NF = self._checked(X, True)
        y_N, is_train_N = _labelled(y)
        check_consistent_length(X_NF, y_N)
        check_classification_targets(y_N[is_train_N])
        self.classes_, found = np.unique(y_N[is_train_N], return_inverse=True)
        if len(self.classes_) == 1:
            raise ValueError(f"y has one class, {self.classes_[0]!r}, and -1 is no label; expected two classes or more")
        class_N = np.full(len(y_N), -1)
        class_N[is_train_N] = found
        return self._fit(X_NF, A, class_N, is_train_N, len(self.classes_))

    def predict_proba(self, X, A=None) -> np.ndarray:
        """Return the probability of each class, (N, C) float32."""
        proba_NC = self._predicted(X, A).probabilities
        assert proba_NC is not None
        return proba_NC

    def predict(self, X, A=None) -> np.ndarray:
        """Return the class of each node, (N,)."""
        best_N = self.predict_proba(X, A).argmax(axis=1)
        return self.classes_[best_N]

    def score(self, X, y, A=None, sample_weight=None) -> float:
        """Return the accuracy over the nodes that have a label."""
        y_N, has_label_N = _labelled(y)
        weight = None if sample_weight is None else np.asarray(sample_weight)[has_label_N]
        return accuracy_score(y_N[has_label_N], self.predict(X, A)[has_label_N], sample_weight=weight)


class NodeRegressor(RegressorMixin, NodeEstimator):
    """One or several numbers of each node, learned from those of some, NaN elsewhere; else as NodeClassifier."""

    def fit(self, X, y, A=None) -> Self:
        """Train on the nodes whose y, (N,) or (N, C), has no NaN.

        Raises: ValueError where X, y and A do not fit each other, and for infinite numbers.
        """
        X_NF, y_N = self._checked(X, True), _numbers(y)
        check_consistent_length(X_NF, y_N)
        self.is_column_ = y_N.ndim == 1
        y_NC = y_N.reshape(len(y_N), -1)
        return self._fit(X_NF, A, y_NC, _have_numbers(y_N), y_NC.shape[1])

    def predict(self, X, A=None) -> np.ndarray:
        """Return the numbers of each node, (N,) or (N, C)."""
        numbers = self._predicted(X, A).numbers
        assert numbers is not None
        return numbers.ravel() if self.is_column_ else numbers.reshape(len(numbers), -1)

    def score(self, X, y, A=None, sample_weight=None) -> float:
        """Return R^2 over the nodes that have numbers."""
        y_N = _numbers(y)
        has_N = _have_numbers(y_N)
        weight = None if sample_weight is None else np.asarray(sample_weight)[has_N]
        return r2_score(y_N[has_N], self.predict(X, A)[has_N], sample_weight=weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _labelled(y) -> tuple[np.ndarray, np.ndarray]:
    """Return y (N,), and where it has a label: neither -1, nor NaN, nor None."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    y_N = column_or_1d(y, warn=True)
    if y_N.dtype.kind == "O":
        is_none_N = np.array([value is None or value != value or value == -1 for value in y_N], bool)
        if len(rest := y_N[~is_none_N]) and not isinstance(rest[0], str):
            y_N = np.where(is_none_N, np.nan, y_N).astype(float)
        return y_N, ~is_none_N
    return y_N, np.ones(len(y_N), bool) if y_N.dtype.kind in "US" else ~(np.isnan(y_N) | (y_N == -1))


def _numbers(y) -> np.ndarray:
    """Return y as float64, (N,) or (N, C), with NaN."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    return check_array(y, dtype=np.float64, ensure_2d=False, ensure_all_finite="allow-nan", input_name="y")


def _have_numbers(y_N: np.ndarray) -> np.ndarray:
    """Return which rows of (N,) or (N, C) have no NaN, (N,) bool."""
    return np.asarray(np.isfinite(y_N.reshape(len(y_N), -1)).all(axis=1))
