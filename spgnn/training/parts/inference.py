"""LayerwiseScorer: scores and predictions of a model on a graph that no rank holds, one part at a time.

Shapes: N nodes, n own nodes of a part, C columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from ...config.names import Task
from ...distgraph import Parts
from ...distgraph.own_rows import OwnRows
from ...errors import GraphError, NumericalError, ShapeError, together
from ...graph import NO_SPLIT, ColumnMap
from ...spmm.kernels.buffers import sum_dtype
from ..metrics import count_own, number_means, number_sums, predicted
from .out_of_core import OutOfCore
from .scratch import Scratch

CLASSES = "classes"  # where predictions are, beside the outputs of each pass


class LayerwiseScorer:
    """Evaluates a model layer by layer; a Scorer, see OutOfCore for what it needs.

    Args: task    what predictions are, classes or labels; None: what the labels of the parts are.
          columns  of a later graph, whose classes may be more than the model's; None: the parts have the model's.
    Collective, as every method.
    """

    def __init__(
        self, model: torch.nn.Module, parts: Parts, scratch: str | Path = "", task: Task | None = None, columns: ColumnMap
        | None = None,
    ):  # fmt: skip
        self.passes, self.parts, self.comm = OutOfCore(model, parts, scratch), parts, parts.comm
        self.task = self.passes.reader.task if task is None else task
        self.C, self.scored = self.passes.needs.written[-1][0], slice(None)
        self.n_counted = self.C
        if columns is not None and columns.scored is not None:
            self.scored, self.n_counted = columns.scored, len(columns.scored)
        elif columns is not None and self.task == "classes":
            self.n_counted = max(self.C, parts.n_classes)
        self.number_type = np.float64 if sum_dtype(self.passes.needs.dtype) == torch.float64 else np.float32
        self.known: tuple[np.ndarray, np.ndarray] | None = None  # of numbers: of each split their number, their means

    def labels(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield labels and split of the own nodes of each own part; numbers (n, C), in the type of the sums, as in memory."""
        for p in self.parts.own:
            block, _, _ = self.parts.source.part(p)
            y_n, split_n = self.parts.labels(block, len(block.own_n))
            assert y_n is not None and split_n is not None  # see check_trainable
            if self.task == "numbers":
                y_n = y_n.astype(self.number_type).reshape(len(y_n), -1)
            yield y_n, split_n

    def split(self) -> np.ndarray:
        """Return the split of all nodes in original order, (N,) int8."""
        split_N = np.full(self.parts.n_nodes, NO_SPLIT, np.int8)
        for p, (_, split_n) in zip(self.parts.own, self.labels()):
            split_N[self.passes.reader.owner_N == p] = split_n
        return self.comm.all_reduce(split_N, "max")

    def logits(self) -> torch.Tensor:
        """Return the logits of the own nodes of all own parts by rising id, (n, C): all of them are in memory."""
        found = [torch.empty(0, self.C)]
        ids = [np.empty(0, np.int64)]

        def keep(rows: OwnRows, Z_nC: torch.Tensor, _) -> None:
            found.append(Z_nC)
            ids.append(rows.node_m[: rows.n])

        self.passes.run(keep)
        order = np.argsort(np.concatenate(ids))
        return torch.cat(found[1:] or found)[torch.from_numpy(order)]

    def counts(self, Z_nC: torch.Tensor | np.ndarray | None = None) -> np.ndarray:
        """Return (3, C, 3) int64: of each split and class the true positives, false positives and false negatives.

        Of numbers (3, C, 5) float64, see metrics.count_numbers.
        Args:   Z_nC  as `logits` returns them, or what `add` has counted of them; None: of an evaluation, which holds
                      those of one part at a time.
        Raises: NumericalError on all ranks where a logit is not finite; as evaluate, where a part cannot be read.
        """
        if Z_nC is None:
            counts, _ = self.evaluate(is_counted=True)
            assert counts is not None
            return counts
        return self._sum(Z_nC if isinstance(Z_nC, np.ndarray) else together(self.comm, self._own_counts, Z_nC))

    def predictions(self) -> np.ndarray | None:
        """Return the predicted classes of all nodes in original order on rank 0, None elsewhere.

        (N,) int64; (N, C) int8 of 0 and 1 where nodes have several labels; numbers, (N,) of one column or (N, C).
        """
        return self.evaluate(is_predicted=True)[1]

    def evaluate(
        self, is_counted: bool = False, is_predicted: bool = False
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return counts and predictions, where they are requested, of one evaluation; see `counts` and `predictions`."""
        counts = self.no_counts() if is_counted else None

        def consume(rows: OwnRows, Z_nC: torch.Tensor, scratch: Scratch) -> None:
            if counts is not None:
                self.add(counts, rows, Z_nC)
            if is_predicted:
                scratch.write(CLASSES, rows.p, predicted(Z_nC, self.task))

        def finish(scratch: Scratch) -> np.ndarray | None:
            return together(self.comm, self._merged, scratch, root=0) if is_predicted else None

        predictions_N = self.passes.run(consume, finish)
        return None if counts is None else self._sum(counts), predictions_N

    def _merged(self, scratch: Scratch) -> np.ndarray:
        """Return the predictions that all ranks have written, in original order."""
        parts, like = self.parts, predicted(torch.empty(0, self.C, dtype=self.passes.needs.written[-1][1]), self.task)
        out_N = np.empty((parts.n_nodes, *like.shape[1:]), like.dtype)
        for q in range(parts.k):
            of_part = np.empty((parts.sizes(q)["n"], *like.shape[1:]), like.dtype)
            scratch.read(CLASSES, q, of_part)
            out_N[self.passes.reader.owner_N == q] = of_part
        return out_N

    def no_counts(self) -> np.ndarray:
        """Return zero counts, (3 C' 3 + 1,) int64, C' = n_counted; the last: parts with logits that are not finite.

        Of numbers (3 C' 4 + 1,) float64, see metrics.number_sums. Collective: the means of the labels are made.
        """
        if self.task != "numbers":
            return np.zeros(9 * self.n_counted + 1, np.int64)
        if self.known is None:
            own = together(self.comm, lambda: [(y_n, _weights(y_n, split_n)) for y_n, split_n in self.labels()])
            none = (np.zeros((0, self.n_counted)), np.zeros((3, 0, self.n_counted)))
            self.known = number_means([none, *own], self.comm)
        return np.zeros(12 * self.n_counted + 1)

    def _own_counts(self, Z_nC: torch.Tensor) -> np.ndarray:
        """Return the counts of the own parts of this rank."""
        counts, owner_N = self.no_counts(), self.passes.reader.owner_N
        of_own = owner_N[np.flatnonzero(owner_N % self.comm.size == self.comm.rank)]
        for p in self.parts.own:
            rows, _ = self.passes.reader.open(p)
            self.add(counts, rows, Z_nC[torch.from_numpy(np.flatnonzero(of_own == p))])
        return counts

    def add(self, counts: np.ndarray, rows: OwnRows, Z_nC: torch.Tensor) -> None:
        """Add the logits of a part to the counts of this rank."""
        if rows.y_n is None or rows.split_n is None:
            raise GraphError(f"{self.parts.name} has no labels; give them with --labels FILE")
        if self.parts.n_classes > self.n_counted:
            raise ShapeError(
                f"the model returns {self.C} columns, {self.parts.name} has {self.parts.n_classes} classes; the last layer "
                f"must have f_out = {self.parts.n_classes}"
            )
        counts[-1] += not torch.isfinite(Z_nC.sum())
        Z_nC = Z_nC[:, self.scored]
        if self.known is not None:
            Y_nC = rows.y_n.double().numpy()
            own = number_sums(Z_nC.double().numpy(), Y_nC, _weights(Y_nC, rows.split_n), self.known[1])
        else:
            own = count_own(Z_nC, rows.y_n, rows.split_n, self.n_counted)
        counts[:-1] += own.ravel()

    def _sum(self, counts: np.ndarray) -> np.ndarray:
        self.comm.all_reduce(counts)
        if counts[-1]:
            raise NumericalError("the logits are not finite")
        if self.known is None:
            return counts[:-1].reshape(3, -1, 3)
        return np.concatenate([self.known[0][:, :, None], counts[:-1].reshape(3, -1, 4)], axis=2)


def _weights(Y_nC: np.ndarray, split_n: np.ndarray) -> np.ndarray:
    """Return which numbers are known, of each split, (3, n, C)."""
    return (split_n == np.arange(3)[:, None])[:, :, None] * ~np.isnan(Y_nC)
