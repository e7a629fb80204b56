"""Layerwise: exact outputs of a model on a graph that no rank holds, one layer after another, one part at a time.

A Stack is cut into passes over the parts; in each of them rows of direct neighbours are read at most once.

Shapes: N nodes, n own nodes of a part, g nodes of its halo, m = n + g, F and C columns, k parts, P ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...config.names import Norm, Task
from ...distgraph import Parts
from ...distgraph.own_rows import OwnRows, OwnRowsReader
from ...errors import GraphError, NumericalError, ResourceError, ShapeError, UsageError, is_out_of_memory, together
from ...graph import NO_SPLIT, ColumnMap
from ...layers import SGC, Stack
from ...layers.layer import Layer, hops_of, width_of
from ...layers.stack import apply_layer, norms_of
from ...machine import give_back_memory
from ...spmm.chains.autograd import mixed_precision
from ...spmm.chains.dropout import NOTHING
from ...spmm.kernels.buffers import array_of
from ...spmm.operator.features import AnyRows
from ...spmm.operator.subgraph import SubgraphSpMM
from ..metrics import count_own, predicted
from .scratch import Scratch

TOGETHER = "use --evaluation together"


@dataclass(frozen=True, slots=True)
class PartLayer:
    """What a pass computes of one layer.

    number   of the layer in the Stack, from 1; operator: the normalisation that it names.
    hops     1: it reads the rows of neighbours; 0: own rows alone.
    """

    number: int
    operator: Norm | None
    hops: int
    forward: Callable[[object, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Pass:
    """Layers that are computed one after the other on the own rows of a part; only the first may read other rows.

    There is no dropout, as in evaluation.
    """

    layers: tuple[PartLayer, ...]

    @property
    def hops(self) -> int:
        """Whether the rows of the halo are read: 1 or 0."""
        return self.layers[0].hops

    def run(self, wide: SubgraphSpMM, local: SubgraphSpMM, H, is_last: bool) -> torch.Tensor:
        """Return the rows of own nodes, (n, C), from H, (m, F), or (n, F) where no rows of the halo are read.

        Args: wide   (n, m); local: (n, n), of layers that do not multiply.
        """
        for layer in self.layers:
            A = wide if layer.hops else local
            A_l = A.at(layer.number, is_last and layer is self.layers[-1], layer.operator, NOTHING)
            with mixed_precision(A_l):
                H = layer.forward(A_l, H)
            if not torch.is_tensor(H) or H.ndim != 2 or len(H) != A_l.n:
                got = tuple(H.shape) if torch.is_tensor(H) else type(H).__name__
                raise UsageError(f"layer {layer.number} returned {got}; expected ({A_l.n}, C). {TOGETHER}")
        return H


def passes_of(model: torch.nn.Module) -> tuple[Pass, ...]:
    """Return the passes of a Stack: each layer that multiplies with A begins one; SGC is one for each product.

    Raises: UsageError for a model whose layers need rows that a pass does not have.
    """
    if type(model) is not Stack or "forward" in vars(model):
        raise UsageError(f"layer by layer, a model is a plain Stack; got a {type(model).__name__}: {TOGETHER}")
    if model.jump:
        raise UsageError(f"layer by layer, jump = {model.jump} needs the outputs of all layers at once: {TOGETHER}")
    layers: list[PartLayer] = []
    for number, layer in enumerate(model.layers, start=1):
        layers += _part_layers(number, layer)
    starts = [place for place, layer in enumerate(layers) if layer.hops or not place]
    return tuple(Pass(tuple(layers[a:b])) for a, b in zip(starts, [*starts[1:], len(layers)]))


def written_by(passes: tuple[Pass, ...], wide: SubgraphSpMM, local: SubgraphSpMM, X) -> list[tuple[int, torch.dtype]]:
    """Return width and type of what each pass writes, from passes over a graph of one node. Raises as the layers do."""
    written, H = [], X
    for number, one in enumerate(passes, start=1):
        H = one.run(wide, local, H, number == len(passes))
        written.append((H.shape[1], H.dtype))
    return written


def _part_layers(number: int, layer: torch.nn.Module) -> list[PartLayer]:
    hops, name = hops_of(layer), type(layer).__name__
    operator = layer.operator if isinstance(layer, Layer) else None
    if type(layer) is SGC and hops is not None and hops > 1 and not layer.residual:
        return _products_of(number, layer)
    if hops is None:
        raise UsageError(f"layer by layer, layer {number}, {name}, must declare hops, 0 or 1: see Layer. Or {TOGETHER}")
    if hops > 1:
        raise UsageError(
            f"layer by layer, a layer multiplies with A once; layer {number}, {name}, {hops} times: {TOGETHER}"
        )
    return [PartLayer(number, operator, hops, partial(apply_layer, layer))]


def _products_of(number: int, layer: SGC) -> list[PartLayer]:
    """Return A (... (A (H W))) as one layer for each product; the last one ends as SGC does."""
    first = lambda A, H: A.chain(H, layer.W_FC)
    product = lambda A, H: A @ H
    last = lambda A, H: layer.finish(A, H, A @ H)
    steps = [first, *[product] * (layer.powers - 2), last]
    return [PartLayer(number, layer.operator, 1, step) for step in steps]


CLASSES = "classes"  # where predictions are, beside the outputs of each pass

Consume = Callable[[OwnRows, torch.Tensor, Scratch], Any]


class Layerwise:
    """H_l = layer_l(A, H_(l-1)) on the own nodes of one part after another, H_0 = X; H_l is on disk between two passes.

        Layerwise(model, Parts("parts", comm, hops=1), "scratch").run(lambda rows, Z_nC, _: ...)

    In memory are one part, with its rows of two layers, and 8 bytes for each of the N nodes. Rows and values are the whole
    graph's, so that outputs are exact; without dropout, as in evaluation.

    Args:   model    a plain Stack whose layers multiply with A once at most, with the same weights on all ranks; an SGC
                     is a pass for each product.
            parts    with halos: hops = 1 or more.
            scratch  a folder that all ranks see; "": the folder of temporary files.
    passes      of the model; bytes_read: of rows of hidden layers that the last run has read, on this rank.
    Raises: UsageError for models that do not fit, GraphError and ShapeError for features that do not. Collective.
    """

    def __init__(self, model: torch.nn.Module, parts: Parts, scratch: str | Path = ""):
        self.model, self.parts, self.scratch, self.comm = model, parts, scratch, parts.comm
        self.passes = passes_of(model)
        self.reader = together(self.comm, OwnRowsReader, parts, norms_of(model))
        assert isinstance(model, Stack)  # of other models passes_of has raised
        f_in = width_of(model.layers[0], "f_in")
        if f_in not in (None, self.reader.n_features):
            raise ShapeError(f"{parts.name} has {self.reader.n_features} features; layer 1 reads {f_in}")
        self.written = self._written()
        self.bytes_read = 0
        self._open: OwnRows | None = None

    @torch.no_grad()
    def run(self, consume: Consume, finish: Callable[[Scratch], Any] = lambda _: None) -> Any:
        """Compute all layers, hand the logits (n, C) of each own part to consume, and return finish(scratch).

        Raises: ResourceError on all ranks where the disk refuses a file. Collective.
        """
        self.model.eval()
        with Scratch(self.scratch, self.comm) as scratch:
            try:
                for number, one in enumerate(self.passes, start=1):
                    together(self.comm, self._pass, number, one, scratch, consume)
                    for p in self.parts.own if number > 1 else ():
                        scratch.remove(_name(number - 1), p)
                self.bytes_read = scratch.read_bytes
                return finish(scratch)
            finally:
                self._open = None
                give_back_memory()

    def bytes_predicted(self) -> int:
        """Return the bytes that a run reads on this rank: sum over parts and hidden layers of (n + g) F itemsize."""
        rows = sum(self.parts.sizes(p)["n"] + self.reader.halo_nodes(p) for p in self.parts.own)
        return rows * sum(width * dtype.itemsize for width, dtype in self.written[:-1])

    def _pass(self, number: int, one: Pass, scratch: Scratch, consume: Consume) -> None:
        """Compute a pass on all own parts: every other one backwards, so that the part in memory is read once."""
        own, is_last = self.parts.own, number == len(self.passes)
        for p in own if number % 2 else reversed(own):
            self.comm.phase = f"layer {one.layers[0].number}, part {p}"
            try:
                rows, H = self._inputs(number, one, p, scratch)
                Z = one.run(rows.wide, rows.local, H, is_last)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                raise ResourceError(
                    f"rank {self.comm.rank}, part {p}: out of memory; partition the graph into more parts, or start fewer ranks"
                ) from None
            del H
            if is_last:
                consume(rows, Z, scratch)
            else:
                scratch.write(_name(number), p, Z)
            del Z

    def _inputs(self, number: int, one: Pass, p: int, scratch: Scratch) -> tuple[OwnRows, AnyRows]:
        """Return the rows of a part and what a pass reads: own rows, then the halo's, gathered from their owners."""
        if self._open is None or self._open.p != p or number == 1:
            self._open = None
            self._open, X = self.reader.open(p, one.hops if number == 1 else None)
            if number == 1:
                assert X is not None  # hops are given
                return self._open, X
        rows, (width, dtype) = self._open, self.written[number - 2]
        H = self.reader.layout.pool.empty(len(rows.node_m), width, dtype=dtype)
        bits, n = array_of(H), rows.n
        scratch.read(_name(number - 1), p, bits[:n])
        for q, which, places in self.reader.owners(rows.node_m[n:]):
            n_q = self.parts.sizes(q)["n"]
            bits[n + which] = scratch.rows(_name(number - 1), q, n_q, places, width, bits.dtype)
        return rows, H

    @torch.no_grad()
    def _written(self) -> list[tuple[int, torch.dtype]]:
        """Return width and type of what each pass writes."""
        self.model.eval()
        A, X = self.reader.one_node()
        return written_by(self.passes, A, A, X)


class LayerwiseScorer:
    """Evaluates a model layer by layer; a Scorer, see Layerwise for what it needs.

    Args: task    what predictions are, classes or labels; None: what the labels of the parts are.
          columns  of a later graph, whose classes may be more than the model's; None: the parts have the model's.
    Collective, as every method.
    """

    def __init__(
        self, model: torch.nn.Module, parts: Parts, scratch: str | Path = "", task: Task | None = None, columns: ColumnMap
        | None = None,
    ):  # fmt: skip
        self.layerwise, self.parts, self.comm = Layerwise(model, parts, scratch), parts, parts.comm
        self.task = self.layerwise.reader.task if task is None else task
        self.C, self.scored = self.layerwise.written[-1][0], slice(None)
        self.n_counted = self.C
        if columns is not None and columns.scored is not None:
            self.scored, self.n_counted = columns.scored, len(columns.scored)
        elif columns is not None and self.task == "classes":
            self.n_counted = max(self.C, parts.n_classes)

    def labels(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield labels and split of the own nodes of each own part."""
        for p in self.parts.own:
            block, _, _ = self.parts.source.part(p)
            y_n, split_n = self.parts.labels(block, len(block.own_n))
            assert y_n is not None and split_n is not None  # see check_trainable
            yield y_n, split_n

    def split(self) -> np.ndarray:
        """Return the split of all nodes in original order, (N,) int8."""
        split_N = np.full(self.parts.n_nodes, NO_SPLIT, np.int8)
        for p, (_, split_n) in zip(self.parts.own, self.labels()):
            split_N[self.layerwise.reader.owner_N == p] = split_n
        return self.comm.all_reduce(split_N, "max")

    def logits(self) -> torch.Tensor:
        """Return the logits of the own nodes of all own parts by rising id, (n, C): all of them are in memory."""
        found = [torch.empty(0, self.C)]
        ids = [np.empty(0, np.int64)]

        def keep(rows: OwnRows, Z_nC: torch.Tensor, _) -> None:
            found.append(Z_nC)
            ids.append(rows.node_m[: rows.n])

        self.layerwise.run(keep)
        order = np.argsort(np.concatenate(ids))
        return torch.cat(found[1:] or found)[torch.from_numpy(order)]

    def counts(self, Z_nC: torch.Tensor | None = None) -> np.ndarray:
        """Return (3, C, 3) int64: of each split and class the true positives, false positives and false negatives.

        Args:   Z_nC  as `logits` returns them; None: of an evaluation, which holds those of one part at a time.
        Raises: NumericalError on all ranks where a logit is not finite; as evaluate, where a part cannot be read.
        """
        if Z_nC is None:
            counts, _ = self.evaluate(is_counted=True)
            assert counts is not None
            return counts
        return self._sum(together(self.comm, self._own_counts, Z_nC))

    def predictions(self) -> np.ndarray | None:
        """Return the predicted classes of all nodes in original order on rank 0, None elsewhere.

        (N,) int64; (N, C) int8 of 0 and 1 where nodes have several labels.
        """
        return self.evaluate(is_predicted=True)[1]

    def evaluate(
        self, is_counted: bool = False, is_predicted: bool = False
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return counts and predictions, where they are requested, of one evaluation; see `counts` and `predictions`."""
        counts = self._no_counts()

        def consume(rows: OwnRows, Z_nC: torch.Tensor, scratch: Scratch) -> None:
            if is_counted:
                self._add(counts, rows, Z_nC)
            if is_predicted:
                scratch.write(CLASSES, rows.p, predicted(Z_nC, self.task))

        def finish(scratch: Scratch) -> np.ndarray | None:
            return together(self.comm, self._merged, scratch, root=0) if is_predicted else None

        predictions_N = self.layerwise.run(consume, finish)
        return self._sum(counts) if is_counted else None, predictions_N

    def _merged(self, scratch: Scratch) -> np.ndarray:
        """Return the predictions that all ranks have written, in original order."""
        parts = self.parts
        shape, dtype = ((self.C,), np.int8) if self.task == "labels" else ((), np.int64)
        out_N = np.empty((parts.n_nodes, *shape), dtype)
        for q in range(parts.k):
            of_part = np.empty((parts.sizes(q)["n"], *shape), dtype)
            scratch.read(CLASSES, q, of_part)
            out_N[self.layerwise.reader.owner_N == q] = of_part
        return out_N

    def _no_counts(self) -> np.ndarray:
        """Return zero counts, (3 C' 3 + 1,) int64, C' = n_counted; the last: parts with logits that are not finite."""
        return np.zeros(9 * self.n_counted + 1, np.int64)

    def _own_counts(self, Z_nC: torch.Tensor) -> np.ndarray:
        """Return the counts of the own parts of this rank."""
        counts, owner_N = self._no_counts(), self.layerwise.reader.owner_N
        of_own = owner_N[np.flatnonzero(owner_N % self.comm.size == self.comm.rank)]
        for p in self.parts.own:
            rows, _ = self.layerwise.reader.open(p)
            self._add(counts, rows, Z_nC[torch.from_numpy(np.flatnonzero(of_own == p))])
        return counts

    def _add(self, counts: np.ndarray, rows: OwnRows, Z_nC: torch.Tensor) -> None:
        if rows.y_n is None or rows.split_n is None:
            raise GraphError(f"{self.parts.name} has no labels; give them with --labels FILE")
        if self.parts.n_classes > self.n_counted:
            raise ShapeError(
                f"the model returns {self.C} columns, {self.parts.name} has {self.parts.n_classes} classes; the last layer "
                f"must have f_out = {self.parts.n_classes}"
            )
        counts[-1] += not torch.isfinite(Z_nC.sum())
        counts[:-1] += count_own(Z_nC[:, self.scored], rows.y_n, rows.split_n, self.n_counted).ravel()

    def _sum(self, counts: np.ndarray) -> np.ndarray:
        self.comm.all_reduce(counts)
        if counts[-1]:
            raise NumericalError("the logits are not finite")
        return counts[:-1].reshape(3, -1, 3)


def _name(number: int) -> str:
    """Return the folder of what a pass writes."""
    return f"pass-{number}"
