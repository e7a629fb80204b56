"""FullScorer: logits of all nodes in evaluation mode, and their counts by split and class; what an evaluation needs.

Shapes: n own rows, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from ..distgraph import DistGraph
from ..errors import NumericalError, SpgnnError, UsageError
from ..graph import NO_SPLIT, given_split, random_edge_split, random_split
from ..layers.stack import norms_of
from ..spmm.chains.autograd import mixed_precision
from ..spmm.dry.dry import DryRun, dry_run
from ..spmm.dry.dry_operator import Setting, setting_of
from ..spmm.operator.features import SparseRows
from .metrics import count, predicted, ranked_scores
from .not_finite import naming_source


def split_of(dgraph: DistGraph, split: str, seed: int) -> np.ndarray:
    """Return the split of the own nodes, (n,) int8: 0 train, 1 val, 2 test, -1 none. Collective.

    split: "given", the number of one of several, "random" (60/20/20 of the labelled nodes, the same
    nodes for any number of ranks; of edges by pairs of nodes), or "auto": given if there is one, else random.
    """
    given_n = given_split(dgraph.name, dgraph.split_n, split)
    if given_n is not None:
        return given_n
    y_N = dgraph.collect(dgraph.has_label_n.astype(np.int64) - 1)  # a split asks whether nodes have a label alone
    split_N = random_split(y_N, seed) if dgraph.on == "nodes" else random_edge_split(y_N, dgraph.edge_ends(), seed)
    return dgraph.own_rows(split_N, of_added=NO_SPLIT)


@contextmanager
def unchanged(X: torch.Tensor | SparseRows | None) -> Iterator[None]:
    """Raise UsageError where the block changes X in place: later passes read it."""
    before = X._version if torch.is_tensor(X) else 0
    yield
    if torch.is_tensor(X) and X._version != before:
        raise UsageError("the model changed X, its input, in place; let it make a new tensor: H = H * 2")


class FullScorer:
    """Evaluates a model exactly on all nodes of a DistGraph.

    Args: split_n  (n,) of the own nodes: 0 train, 1 val, 2 test, -1 none.
    Collective, as every method.
    """

    def __init__(self, model: torch.nn.Module, dgraph: DistGraph, split_n: np.ndarray):
        self.model, self.dgraph = model, dgraph
        self.task = dgraph.task
        # Rows that several ranks hold are counted on one of them.
        self.split_n = split_n if dgraph.is_counted else np.full_like(split_n, -1)

    @property
    def y_n(self) -> torch.Tensor:
        """Labels of the own nodes, which a graph that is trained has."""
        assert self.dgraph.y_n is not None
        return self.dgraph.y_n

    def labels(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield labels and split of the own nodes that count, on one rank each."""
        if self.dgraph.is_counted:
            yield self.y_n.numpy(), self.split_n

    def split(self) -> np.ndarray:
        """Return the split of all nodes in original order, (N,) int8."""
        return self.dgraph.collect(self.split_n)

    @torch.no_grad()
    def logits(self) -> torch.Tensor:
        """Return the logits of the own nodes in evaluation mode, (n, C)."""
        self.model.eval()
        with mixed_precision(self.dgraph.A), unchanged(self.dgraph.X):
            return self.model(self.dgraph.A, self.dgraph.X)

    def counts(self, Z_nC: torch.Tensor | None = None) -> np.ndarray:
        """Return (3, C, 3) int64: of each split and class the true positives, false positives and false negatives.

        Of numbers (3, C, 5) float64, see metrics.count_numbers.
        """
        dgraph, Z_nC = self.dgraph, self.logits() if Z_nC is None else Z_nC
        bad = np.array([0 if torch.isfinite(Z_nC.sum()) else 1], np.int64)  # a NaN or infinity is in the sum
        dgraph.comm.all_reduce(bad, "max")
        if bad[0]:
            with naming_source(self.model, dgraph, self.logits):
                raise NumericalError("the logits are not finite")
        return count(Z_nC, self.y_n, self.split_n, dgraph.n_classes, dgraph.comm, dgraph.task)

    def ranked(self, Z_nC: torch.Tensor | None = None) -> dict[str, dict[str, float]]:
        """Return ROC-AUC and average precision of each split, of several labels, see metrics.ranked_scores."""
        Z_nC = self.logits() if Z_nC is None else Z_nC
        return ranked_scores(Z_nC, self.y_n, self.split_n, self.dgraph.comm)

    def predictions(self) -> np.ndarray:
        """Return the predicted class of all nodes in original order, (N,) int64; 0/1 for each, (N, C) int8, of several labels.

        Of numbers what the model returns, (N,) of one column, else (N, C).
        """
        return self.dgraph.collect(predicted(self.logits(), self.task))


MANY = 1 << 20  # powers of A: more than any model has


def make_cached_products(dgraph: DistGraph, model: torch.nn.Module) -> dict[Setting, DryRun]:
    """Compute what an evaluation of the model caches, found by running it without data; A X where it cannot.

    Returns: the dry run that was made, by its setting. Collective.
    """
    A, X, runs = dgraph.A, dgraph.X, {}
    if A.fixed_input is None or X is None:
        return runs
    setting = setting_of(A, X, n_train=0 if dgraph.task != "classes" else None)
    if X.is_sparse:  # whether A^j X stays sparse is decided by `make`
        setting = replace(setting, powers=(MANY,), is_cached=True)
    try:
        runs[setting] = dry_run(model, setting, shared=(dgraph,))
        found: list = [list(product) for product in runs[setting].cached]
    except SpgnnError:  # training raises it too, unless the model cannot run without data
        found = [[norms_of(model)[0], 1]]  # its operator is made below, by all ranks
    for name, power in dgraph.comm.all_gather_json(found)[0]:  # the same on all ranks
        A.fixed_input.make(A.with_norm(name), power)
    return runs
