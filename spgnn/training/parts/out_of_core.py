"""OutOfCore: a model on a graph that no rank holds, one layer after another, one part at a time: outputs and gradients, exact.

Shapes: N nodes, n own nodes of a part, g nodes of its halo, m = n + g, F and C columns, k parts, P ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ...distgraph import Parts
from ...distgraph.own_rows import OwnRows, OwnRowsReader
from ...errors import ResourceError, ShapeError, is_out_of_memory, together
from ...layers import Stack
from ...layers.layer import BuiltIn, width_of
from ...layers.stack import norms_of, set_epoch
from ...machine import give_back_memory
from ...spmm.chains.dropout import is_nothing
from ...spmm.kernels.buffers import BufferPool
from ...spmm.operator.facts import FixedInput
from ...spmm.operator.features import AnyRows
from ...spmm.operator.subgraph import SubgraphSpMM
from ..epoch_lines import PassLines
from ..steps.step import sum_ranks
from .part_store import PartStore
from .pass_files import PassFiles
from .pass_needs import Needs, sizes_of
from .passes import Pass, passes_of, written_by
from .scratch import Scratch, check_room

Consume = Callable[[OwnRows, torch.Tensor, Scratch], Any]
LossOf = Callable[[OwnRows, torch.Tensor], torch.Tensor]  # rows of a part and their logits -> its part of the loss
Compute = Callable[[OwnRows, AnyRows], Any]


HELD = 1.1  # times the bytes in use at once that buffers may hold


class TrainingFiles(NamedTuple):
    """What a training keeps between epochs: files of rows, and the operators of parts."""

    files: PassFiles
    store: PartStore


class OutOfCore:
    """H_l = layer_l(A, H_(l-1)) on the own nodes of one part after another, H_0 = X; H_l is on disk between two passes.

        OutOfCore(model, Parts("parts", comm, hops=1), "scratch").run(lambda rows, Z_nC, _: ...)

    In memory are one part, with its rows of two layers, and 8 bytes for each of the N nodes. Rows and values are the whole
    graph's, so that outputs and gradients are exact. `gradient` computes the layers, then from the last to the first each
    of them again with what backward needs. A part writes the gradients of the rows of its halo in the order of their
    owners, which add them up in the order of parts.

    Args:   model    a plain Stack, see passes_of, with the same weights on all ranks.
            parts    with halos: hops = 1 or more.
            scratch  a folder that all ranks see; "": the folder of temporary files.
    passes      of the model; bytes_read: from scratch in the last run, on this rank.
    Raises: UsageError for models that do not fit, GraphError and ShapeError for features that do not. Collective.
    """

    def __init__(self, model: torch.nn.Module, parts: Parts, scratch: str | Path = ""):
        passes = passes_of(model)
        assert isinstance(model, Stack)  # of other models passes_of has raised
        self.model, self.parts, self.home = model, parts, scratch
        self.reader = together(parts.comm, OwnRowsReader, parts, norms_of(model))
        f_in, dtype, pool = width_of(model.layers[0], "f_in"), self.reader.layout.dtype, self.reader.layout.pool
        assert isinstance(pool, BufferPool)  # of the CPU
        pool.most_held = HELD  # each part has other sizes
        if f_in not in (None, self.reader.n_features):
            raise ShapeError(f"{parts.name} has {self.reader.n_features} features; layer 1 reads {f_in}")
        is_sparse = parts.source.facts.is_sparse
        written = written_by(passes, self.reader.n_features, is_sparse, dtype)
        facts = (parts.how.operator, parts.source.facts.is_symmetric)
        of_owners = tuple(one.is_own_transpose(*facts) for one in passes)
        self.needs = Needs(passes, written, self.reader.n_features, dtype, is_sparse, of_owners)
        self.bytes_read = 0
        self._open: OwnRows | None = None
        self._is_back = False  # every other pass visits the parts backwards, so that the part in memory is read once
        self._training: TrainingFiles | None = None  # from the first gradient to `close`
        self._lines: PassLines | None = None  # of an epoch, on rank 0

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The passes of the model."""
        return self.needs.passes

    @property
    def comm(self):
        """The communicator of the parts."""
        return self.parts.comm

    @torch.no_grad()
    def run(self, consume: Consume, finish: Callable[[Scratch], Any] = lambda _: None) -> Any:
        """Compute all layers, hand the logits (n, C) of each own part to consume, and return finish(scratch).

        Raises: ResourceError on all ranks where the disk refuses a file. Collective.
        """
        self.model.eval()
        last, training = len(self.passes), self._training
        with Scratch(self.home, self.comm) if training is None else nullcontext(training.files.scratch) as scratch:
            files = PassFiles(self.reader, self.passes, self.needs.written, scratch)
            before = scratch.read_bytes
            try:
                self._is_back = False
                for number in range(1, last):
                    self._forward(number, files)
                    if training is None:  # which writes over the files
                        files.clear(number - 1)
                compute = self._computed(last, files)
                self._visit(last, files, lambda rows, H: consume(rows, compute(rows, H, rows.wide), scratch))
                self.bytes_read = scratch.read_bytes - before
                return finish(scratch)
            finally:
                self._open = None
                give_back_memory()

    def gradient(self, seed: int, epoch: int, loss_of: LossOf) -> int:
        """Compute the gradient of the sum of loss_of over all own parts, in training mode, as the `grad` of the weights.

        Return the bytes that this rank read from scratch. The gradients of other ranks are not added. Sums over parts are float64.
        Args:   seed, epoch  of dropout; loss_of: called once for each own part.
        Raises: ResourceError on all ranks where the disk refuses a file. Collective.
        """
        self._training = self._training or self._begin()
        files, store = self._training
        before, last = files.scratch.read_bytes, len(self.passes)
        self.model.train()
        set_epoch(self.model, seed, epoch)
        sums = GradientSums(self.model)
        if self.comm.rank == 0:
            self._lines = PassLines(f"epoch {epoch}", (2 * last - 1) * len(self.parts.own))
        self._is_back = False
        with torch.no_grad():
            for number in range(1, last):
                self._forward(number, files)
        for number in range(last, 0, -1):
            back = self._backward(number, files, loss_of)

            def of_part(rows: OwnRows, H: AnyRows, back=back) -> None:
                back(rows, H)
                sums.take()
                store.keep(rows)

            self._visit(number, files, of_part, is_back=True)
            if number in files.moments:
                files.moments[number].sum_gradients()
        sums.give()
        files.moments.clear()
        self._lines = None
        self._open = None
        give_back_memory()
        return files.scratch.read_bytes - before

    def close(self, error: BaseException | None = None) -> None:
        """Remove the files of a training; a later gradient makes them again. Collective, unless there was an error."""
        training, self._training, self._open = self._training, None, None
        if training is not None:
            training.files.scratch.__exit__(error and type(error), error, None)
            give_back_memory()

    def bytes_predicted(self) -> int:
        """Return the bytes that a run reads on this rank: sum over parts and hidden layers of (n + g) F itemsize."""
        own = [self.parts.sizes(p)["n"] for p in self.parts.own]
        rows = [n + self.reader.halo_nodes(p) for n, p in zip(own, self.parts.own)]
        return sum(
            sum(rows if after.hops else own) * width * dtype.itemsize
            for (width, dtype), after in zip(self.needs.written, self.passes[1:])
        )

    def disk_bytes(self) -> int:
        """Return the predicted bytes of the files of a training, of this rank."""
        return self.needs.disk(*sizes_of(self.parts, self.parts.own))

    def part_bytes(self) -> int:
        """Return the predicted bytes of memory of the largest own part, beside the process."""
        return max(
            (self.needs.memory(*sizes_of(self.parts, [p]), self.parts.n_nodes) for p in self.parts.own), default=0
        )

    def reads_predicted(self) -> int:
        """Return the predicted bytes that an epoch reads from files, on this rank."""
        return self.needs.reads(*sizes_of(self.parts, self.parts.own))

    def _begin(self) -> TrainingFiles:
        """Make the files of a training. Raises: ResourceError, on all ranks, where the disk has too little room."""
        counts_kk = np.zeros((self.parts.k, self.parts.k), np.int64)
        for p, counts in zip(
            self.parts.own, together(self.comm, lambda: [*map(self.reader.halo_counts, self.parts.own)])
        ):
            counts_kk[p] = counts
        self.comm.all_reduce(counts_kk)
        together(self.comm, check_room, self.home, sum_ranks(self.disk_bytes(), self.comm))
        scratch = Scratch(self.home, self.comm).__enter__()
        files = PassFiles(self.reader, self.passes, self.needs.written, scratch, counts_kk)
        return TrainingFiles(files, PartStore(self.reader, scratch))

    def _forward(self, number: int, files: PassFiles) -> None:
        """Compute a pass on all own parts, and write its rows."""
        compute, is_step = self._computed(number, files), self.model.training

        def forward(rows: OwnRows, H: AnyRows) -> None:
            files.write(number, rows.p, compute(rows, H, files.taking(number, rows) if is_step else rows.wide))

        self._visit(number, files, forward)

    def _computed(self, number: int, files: PassFiles) -> Callable[[OwnRows, AnyRows, SubgraphSpMM], torch.Tensor]:
        """Return what computes a pass on a part, with its operator. Collective: the moments of its BatchNorm are made now."""
        one, is_last, moments = self.passes[number - 1], number == len(self.passes), files.moments_of(number)
        at = None if moments is None else (moments.mean_F, moments.var_F)
        return lambda rows, H, A: one.run(A, rows.local, H, is_last, at)

    def _backward(self, number: int, files: PassFiles, loss_of: LossOf) -> Compute:
        """Return what computes a pass on a part again, and the gradients of weights and of the rows that it reads."""
        compute, is_last = self._computed(number, files), number == len(self.passes)

        def back(rows: OwnRows, H: AnyRows) -> None:
            product = None
            if number > 1:
                assert isinstance(H, torch.Tensor)
                H.requires_grad_()
                product = files.product(number, rows)
            with torch.enable_grad():
                Z = compute(rows, H, product or rows.wide)
                loss = loss_of(rows, Z) if is_last else None
            if loss is not None and loss.requires_grad:
                loss.backward()
            elif loss is None and Z.requires_grad:
                Z.backward(files.arrived(number, rows))
            if number > 1:
                assert isinstance(H, torch.Tensor) and H.grad is not None
                files.send(number - 1, rows, H.grad, product)

        return back

    def _visit(self, number: int, files: PassFiles, compute: Compute, is_back: bool = False) -> None:
        """Call compute(rows of a part, the rows of nodes that a pass reads) for each own part. Collective.

        Args: is_back  to compute gradients: of the parts whose A H is kept, own rows alone are read.
        """

        def visit() -> None:
            for p in reversed(self.parts.own) if self._is_back else self.parts.own:
                self.comm.phase = f"layer {self.passes[number - 1].layers[0].number}, part {p}"
                try:
                    compute(*self._inputs(number, p, files, is_back))
                except (MemoryError, RuntimeError) as error:
                    if not is_out_of_memory(error):
                        raise
                    raise ResourceError(
                        f"rank {self.comm.rank}, part {p}: out of memory; partition the graph into more parts, or start fewer ranks"
                    ) from None
                if number == 1 and self._open is not None and self._training is not None:
                    self._training.store.keep_products(self._open)
                if self._lines is not None:
                    self._lines(self.comm.phase)

        together(self.comm, visit)
        self._is_back = not self._is_back

    def _inputs(self, number: int, p: int, files: PassFiles, is_back: bool) -> tuple[OwnRows, AnyRows]:
        """Return the rows of a part, the only ones that are held, and the rows of nodes that a pass reads."""
        if self._open is None or self._open.p != p:
            self._open = None
            give_back_memory()
            store = None if self._training is None else self._training.store
            if store is None or p not in store:  # to make A of a part, beside X, takes as much as a pass
                self.reader.layout.pool.trim()
            if number == 1 and (store is None or p not in store):
                self._open, X = self.reader.open(p, self.passes[0].hops)
                return self._open, self._features(self._open, X)
            self._open = self.reader.open(p)[0] if store is None else store.open(p)
        if number == 1:
            return self._open, self._features(self._open)
        is_kept = is_back and (number, p) in files.products
        return self._open, files.read_own(number, p) if is_kept else files.inputs(number, self._open)

    def _features(self, rows: OwnRows, X: AnyRows | None = None) -> AnyRows:
        """Return X of own nodes, then of the halo where the first pass reads it.

        In training A X is kept, as in memory, where the first layer reads X only so.
        Args: X  of a part that is opened from its folder; None: it is read.
        """
        hops, training = self.passes[0].hops, self._training
        rate, key = self.model.dropout_of(1)
        is_fixed = training is not None and self.parts.how.keep and hops and (rate == 0 or is_nothing(key))
        is_fixed = is_fixed and isinstance(self.model.layers[0], BuiltIn)
        products = training.store.products(rows.p) if training is not None and is_fixed else {}
        X = self.reader.input(rows.p, 0 if products else hops) if X is None else X
        assert X is not None
        if is_fixed and torch.is_tensor(X):
            rows.wide.fixed_input = FixedInput(X)
            rows.wide.fixed_input.products |= products
        return X


class GradientSums:
    """The gradients of the weights of a model, summed over parts in float64 in the order of their visits."""

    def __init__(self, model: torch.nn.Module):
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.totals = [torch.zeros(weight.shape, dtype=torch.float64) for weight in self.weights]
        for weight in self.weights:
            weight.grad = None

    def take(self) -> None:
        """Add the gradients of a part, and clear them."""
        for weight, total in zip(self.weights, self.totals):
            if weight.grad is not None:
                total += weight.grad
                weight.grad = None

    def give(self) -> None:
        """Give the weights the sums."""
        for weight, total in zip(self.weights, self.totals):
            weight.grad = total.to(weight.dtype)
