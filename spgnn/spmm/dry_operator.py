"""DryOperator: an operator, its exchanges and features of which only sizes are known, on torch's meta device.

Shapes: n rows out, m own rows in, F features, c replication.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..cost.grid import ProcessGrid
from ..cost.schedule import order_reason
from ..errors import UsageError
from .cached_ghosts import reads_fixed_input
from .dropout import dropped_of
from .dry_parts import DryCSR, DryInput, DryOperations, DryRows, Silent
from .exchange.context import Layout
from .exchange.exchange_plan import ExchangePlan
from .exchange.row_sum import RowSum
from .exchange.stages import Stage
from .exchange.wire import Wire
from .features import SparseRows
from .fixed_input import FixedInput, of_key
from .ghosts import ColumnBlock
from .kernels.buffers import sum_dtype
from .kernels.csr import LocalCSR
from .ledger import CountingPool, Ledger
from .operator import DistSpMM
from .place import OUTSIDE, Place
from .timing import OWN
from .view import LayerView, current_pass

META = torch.device("meta")
FIRST_PRIME = 1_000_003  # more rows than any width, so that what they divide is theirs


@dataclass(frozen=True, slots=True)
class RankRows:
    """Rows of one rank's operator: out, in, and those that it sends and receives in each stage.

    ghosts    rows sent and received by A.columns; (): as many as in all stages.
    is_local  of a layer that does not multiply with A: as many rows out as in.
    """

    n: int
    m: int
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    ghosts: tuple[int, ...] = ()
    is_local: bool = False

    def counts(self) -> tuple[int, ...]:
        """Return all numbers of rows, those of own and ghost rows together among them."""
        tables = [self.m + self.ghosts[1]] if self.ghosts else []
        return (self.n, self.m, *self.sent, *self.received, *self.ghosts, *tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a dry run asks about a rank's part of the graph, and how the graph is distributed.

    rows, steps    of the operator; of the layers of a pruned training step, where there is one.
    operator       normalisation of A in the first layer, and of layers that name none.
    is_cached      A X was computed before; step_is_cached: and a pruned step reads it.
    x_nnz          nonzeros of sparse X, None: X is dense; cached_nnz: of A X where it is cached;
                   power_nnz: (j, nonzeros of A^j X) for those that are, j > 1;
                   step_nnz: of the rows of either that a pruned step reads.
    ghost_nnz      nonzeros of the ghost rows of sparse X, which are cached; None: they are not, or X is dense.
    place, holder  of this rank and of the rank that holds its rows among the `replication` of a process row.
    has_gradient   X requires a gradient.
    n_train        rows of a multi-label loss; None: one class for each node.
    """

    rows: RankRows
    features: int
    steps: tuple[RankRows, ...] = ()
    dtype: torch.dtype = torch.float32
    wires: tuple[str, str] = ("float32", "float32")
    order: str = "auto"
    operator: str = "gcn"
    replication: int = 1
    place: int = 0
    holder: int = 0
    is_cached: bool = True
    step_is_cached: bool = True
    x_nnz: int | None = None
    cached_nnz: int | None = None
    power_nnz: tuple[tuple[int, int], ...] = ()
    step_nnz: int | None = None
    ghost_nnz: int | None = None
    has_gradient: bool = False
    n_train: int | None = None

    def counts(self) -> tuple[int, ...]:
        """Return all numbers of rows and nonzeros, in an order that depends on the stages and steps alone."""
        of_rows = [x for rows in (self.rows, *self.steps) for x in rows.counts()]
        powers = (nnz for _, nnz in self.power_nnz)
        return (
            *of_rows,
            *(x or 0 for x in (self.x_nnz, self.cached_nnz, *powers, self.step_nnz, self.ghost_nnz, self.n_train)),
        )

    def nominal(self) -> Setting:
        """Return the same with primes in place of all numbers, by which DryRun.on finds what grows with which."""
        primes = _primes()
        n, outs = next(primes) * self.replication, [next(primes) for _ in range(len(self.steps) + 1)]
        drawn = lambda values: tuple(next(primes) for _ in values)
        rows = RankRows(n, n, drawn(self.rows.sent), drawn(self.rows.received), drawn(self.rows.ghosts))
        for l, of in reversed(list(enumerate(self.steps))):
            outs[l] = outs[l + 1] if of.is_local else outs[l]
        steps = tuple(
            RankRows(
                outs[l + 1] * self.replication,
                outs[l] * self.replication,
                drawn(of.sent),
                drawn(of.received),
                drawn(of.ghosts),
                of.is_local,
            )
            for l, of in enumerate(self.steps)
        )
        more: dict[str, Any] = {
            name: next(primes)
            for name in ("x_nnz", "cached_nnz", "step_nnz", "ghost_nnz", "n_train")
            if getattr(self, name) is not None
        }
        more["power_nnz"] = tuple((power, next(primes)) for power, _ in self.power_nnz)
        return replace(self, rows=rows, steps=steps, place=0, holder=0, **more)


def setting_of(A: DistSpMM, X: torch.Tensor | SparseRows, step=None, n_train: int | None = None) -> Setting:
    """Return the setting of a rank as it is.

    Args: step     PrunedSpMM of a training step, where rows are pruned.
          n_train  rows of a multi-label loss.
    """
    c, cached, is_sparse = 1 if A.row_sum is None else A.row_sum.comm.size, A.kept, isinstance(X, SparseRows)
    nnz = lambda S: S.csr.nnz if is_sparse and S is not None else None
    first = step.layers[0].kept if step is not None and step.is_kept else None
    powers = _power_nnz(A) if is_sparse else ()
    return Setting(
        rows=rows_of(A),
        steps=() if step is None else _rows_of_steps(step),
        features=X.shape[1],
        dtype=A.dtype,
        wires=tuple(wire.name for wire in A.layout.wires),
        order=A.order,
        operator=A.name,
        replication=c,
        place=0 if c == 1 else A.row_sum.comm.rank,
        holder=0 if c == 1 else A.row_sum.holder,
        is_cached=cached is not None or bool(powers) or (not is_sparse and A.fixed_input is not None),  # or will be
        step_is_cached=first is not None,
        x_nnz=nnz(X),
        cached_nnz=nnz(cached),
        power_nnz=powers,
        step_nnz=None if step is None else nnz(step.X if first is None else first),
        ghost_nnz=X.csr.nnz * A.g // max(A.m, 1) if is_sparse and A.fixed_input is not None else None,
        has_gradient=not is_sparse and X.requires_grad,
        n_train=n_train,
    )


def _power_nnz(A: DistSpMM) -> tuple[tuple[int, int], ...]:
    products = {} if A.fixed_input is None else A.fixed_input.products
    found = [(*of_key(key), S) for key, S in products.items()]
    return tuple((power, S.csr.nnz) for name, power, S in found if name == A.name and power > 1 and S is not None)


def _rows_of_steps(step) -> tuple[RankRows, ...]:
    first, *others = step.layers
    rows = RankRows(len(first.selected), first.m) if step.is_kept else rows_of(first)  # of a cached A X it takes rows
    return (rows, *map(rows_of, others))


def rows_of(A: DistSpMM) -> RankRows:
    """Return the rows of an operator."""
    plans = [stage.plan for stage in A.stages]
    ghosts = () if A.plan is None else (A.plan.sent_rows, A.plan.g)
    return RankRows(A.n, A.m, tuple(plan.sent_rows for plan in plans), tuple(plan.g for plan in plans), ghosts)


def inputs_of(setting: Setting, ledger: Ledger) -> tuple:
    """Return operator and X of an evaluation, and those of a training step."""
    layout = _layout(setting, ledger)
    cached = (() if setting.cached_nnz is None else ((1, setting.cached_nnz),)) + setting.power_nnz
    A = DryOperator(setting.rows, layout, ledger, setting.operator, dict(cached), setting.ghost_nnz)
    X = _features(setting, setting.rows.m, setting.x_nnz, layout.pool, ledger)
    if setting.is_cached or setting.ghost_nnz is not None:
        A.fixed_input = DryInput(X, ledger)
    if not setting.steps:
        return A, X, A, X
    step_X = X
    if not setting.step_is_cached:
        step_X = _features(setting, setting.steps[0].m, setting.step_nnz, layout.pool, ledger)
    return A, X, DrySteps(A, step_X, setting, ledger), step_X


def _features(setting: Setting, n: int, nnz: int | None, pool: CountingPool, ledger: Ledger):
    if nnz is not None:
        return DryRows(n, setting.features, nnz, pool, setting.dtype, ledger)
    X = torch.empty((n, setting.features), dtype=setting.dtype, device=META)
    ledger.take(X, is_pooled=False)
    return X.requires_grad_(setting.has_gradient)


def _layout(setting: Setting, ledger: Ledger) -> Layout:
    pool, comm, ops, c = CountingPool(ledger), Silent(1), DryOperations(), setting.replication
    row_sum = None
    if c > 1:
        row_sum = RowSum(Silent(c, setting.place), setting.holder, pool)
    wires = tuple(Wire(name) for name in setting.wires)
    layout = Layout(
        comm, ProcessGrid(1), comm, row_sum, "columns", (), pool, setting.dtype, 0, wires, order=setting.order
    )
    layout.use(ops)
    return layout


class DryOperator(DistSpMM):
    """DistSpMM of which sizes alone are known: its products are written down, kernels and exchanges do nothing."""

    def __init__(
        self,
        rows: RankRows,
        layout: Layout,
        ledger: Ledger,
        name: str,
        cached_nnz: dict[int, int] | None = None,
        ghost_nnz: int | None = None,
    ):
        self.name, self.layout, self.ledger, self.cached_nnz = name, layout, ledger, cached_nnz or {}
        self.ghost_nnz = ghost_nnz or 0
        self.comm, self.pool, self.dtype, self.threads = layout.comm, layout.pool, layout.dtype, layout.threads
        self.row_sum, self.device = layout.row_sum, META
        self.n, self.m = rows.n, rows.m
        self.A_oo = DryCSR(rows.n, rows.m, layout.dtype)
        self.stages = [
            Stage(_plan(layout, rows.m, sent, received), DryCSR(rows.n, received, layout.dtype))
            for sent, received in zip(rows.sent, rows.received)
        ]
        sent, self.g = rows.ghosts or (sum(rows.sent), sum(rows.received))
        self.plan = self._ghost_plan = _plan(layout, rows.m, sent, self.g) if self.stages else None
        self.node_n = np.zeros(rows.m, np.int64)
        self.selected = None
        self._columns = (ColumnBlock(self.A_oo, self.node_n),)
        if self.stages:
            of_ghosts = DryCSR(rows.n, self.g, layout.dtype)
            self._columns += (ColumnBlock(of_ghosts, np.zeros(self.g, np.int64), True, rows.m),)

    def at(self, layer: int | None = None, is_last: bool = False, operator: str | None = None, key=None) -> LayerView:
        """Return this operator, or another normalisation, as a layer sees it."""
        self.ledger.enter(layer)
        return DryView(self.with_norm(operator), layer, current_pass(), is_last, self, key)

    def with_norm(self, how: str | None) -> DistSpMM:
        """Return the operator of another normalisation: of the same sizes, with a cached A X of its own."""
        if how is None or how == self.name:
            return self
        other = copy.copy(self)
        other.name = how
        return other

    def apply(
        self, H_mF, bias_F=None, relu: bool = False, dtype=None, place: Place = OUTSIDE, add_nF=None
    ) -> torch.Tensor:
        """Return A H, and write it down."""
        self.ledger.product(place, H_mF.shape[1])
        return super().apply(H_mF, bias_F, relu, dtype, place, add_nF)

    def adjoint(self, G_nF, place: Place = OUTSIDE) -> torch.Tensor:
        """Return A' G, and write it down."""
        self.ledger.product(place, G_nF.shape[1])
        return super().adjoint(G_nF, place)

    def _spmm(self, phase: str, A: LocalCSR, X_mF, out_nF, **options) -> torch.Tensor:
        """Write down the widest row of a product whose sums are not rounded."""
        if phase == OWN and self.ledger.pass_name != "setup" and out_nF.dtype == sum_dtype(out_nF.dtype):
            self.ledger.widest_sum = max(self.ledger.widest_sum, X_mF.shape[1] * X_mF.element_size())
        return super()._spmm(phase, A, X_mF, out_nF, **options)

    def pull(self, H_mF: torch.Tensor, place: Place = OUTSIDE) -> torch.Tensor:
        """Return own and ghost rows, and write it down."""
        self.ledger.product(place, H_mF.shape[1], rows="ghosts")
        return super().pull(H_mF, place)

    def pull_ghosts(self, H_mF: torch.Tensor | SparseRows, place: Place = OUTSIDE) -> torch.Tensor | SparseRows:
        """Return the ghost rows of X, which stay and are counted elsewhere, and write it down."""
        self.ledger.product(place, H_mF.shape[1], rows="ghosts")
        if isinstance(H_mF, SparseRows):
            nnz = self.ghost_nnz if self.stages else 0
            return DryRows(self.g, H_mF.shape[1], nnz, self.pool, self.dtype, self.ledger)
        return torch.empty((self.g, H_mF.shape[1]), dtype=H_mF.dtype, device=META)

    def over_columns(self, H_mF: torch.Tensor, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, torch.Tensor]]:
        """Yield own and ghost columns, and write the exchange down."""
        self.ledger.product(place, H_mF.shape[1], rows="ghosts")
        yield from super().over_columns(H_mF, place)

    def add_columns(self, rows_of: Callable, dtype: torch.dtype, place: Place = OUTSIDE) -> torch.Tensor:
        """Return the adjoint of over_columns, and write the exchange down."""
        out_mF = super().add_columns(rows_of, dtype, place)
        self.ledger.product(place, out_mF.shape[1], rows="ghosts")
        return out_mF

    def combine(self, Z_nF: torch.Tensor, add: Callable | None = None, place: Place = OUTSIDE) -> torch.Tensor:
        """Return Z, and write the sum over the process row down."""
        if self.row_sum is not None:
            size = sum_dtype(self.dtype).itemsize
            self.ledger.product(place, Z_nF.shape[1] * Z_nF.element_size() // size, rows="sum")
        return super().combine(Z_nF, add, place)

    def apply_cached(
        self, H_mF, ghosts_gF, bias_F=None, relu: bool = False, dtype=None, place: Place = OUTSIDE, add_nF=None
    ) -> torch.Tensor:
        """Return A H of rows that are at hand."""
        if self.ledger.pass_name != "setup" and self.dtype == sum_dtype(self.dtype):
            self.ledger.widest_sum = max(self.ledger.widest_sum, H_mF.shape[1] * H_mF.element_size())
        return super().apply_cached(H_mF, ghosts_gF, bias_F, relu, dtype, place, add_nF)

    def adjoint_cached(self, G_nF: torch.Tensor, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, torch.Tensor]]:
        """Yield the gradients of rows that are at hand, and write the product down."""
        self.ledger.product(place, G_nF.shape[1], rows="cached ghosts")
        yield from super().adjoint_cached(G_nF, place)

    def apply_sparse(self, X: SparseRows, place: Place = OUTSIDE) -> SparseRows:
        """Return A X where it is cached."""
        if place.pass_name != "setup":
            raise UsageError("a sparse X is multiplied with A in every step: its nonzeros are not known without data")
        power = X.power + 1
        return DryRows(self.n, X.shape[1], self.cached_nnz.get(power, X.nnz), self.pool, self.dtype, self.ledger, power)

    def stays_sparse(self, X: SparseRows, place: Place = OUTSIDE) -> bool:
        """Return whether A X, or A^j X, is cached."""
        return X.power < max(self.cached_nnz, default=0)


class DryView(LayerView):
    """A DryOperator in one layer."""

    def power(self, H, j: int):
        out = super().power(H, j)
        if self.is_cached(H, j):
            self.operator.ledger.cached(Place(self.layer, self.pass_name), H.shape[1])
        return out

    def chain(self, H, W_FC, bias_C=None, relu: bool = False, add=None, power: int = 1) -> torch.Tensor:
        is_cached, is_sparse = self.is_cached(H, power), isinstance(H, SparseRows)
        shape, is_hidden = tuple(W_FC.shape), not is_sparse and H.requires_grad
        reads_ghosts = not is_cached and reads_fixed_input(self, H)

        def why(order: str) -> str:
            if reads_ghosts and order == "spmm_first":
                return "X changes by dropout alone: its ghost rows are cached and dropped out by their reader"
            reason = order_reason(*shape, order, is_cached, is_sparse, is_hidden, is_asked=self.order == "spmm_first")
            by_reader = "" if dropped_of(H) is None else " and dropped out by their reader"
            return f"{reason}; ghost rows of X are cached{by_reader}" if reads_ghosts else reason

        run = lambda: super(DryView, self).chain(H, W_FC, bias_C, relu, add, power)
        if reads_ghosts:
            FixedInput.ghosts(self.fixed_input, self)  # in set-up: no product of the chain
        return self.operator.ledger.chain(Place(self.layer, self.pass_name), run, shape, is_cached, why)

    def attend(self, X, left_DK, right_DK, slope: float = 0.2, rate: float = 0.0, draw: int = 1) -> torch.Tensor:
        self._over_edges("attend", X, left_DK.shape[1])
        return super().attend(X, left_DK, right_DK, slope, rate, draw)

    def attend2(self, left_mKD, right, a_DK, slope: float = 0.2, rate: float = 0.0, draw: int = 1) -> torch.Tensor:
        self._over_edges("attend2", right, a_DK.shape[1])
        return super().attend2(left_mKD, right, a_DK, slope, rate, draw)

    def maximum(self, H) -> torch.Tensor:
        self._over_edges("maximum", H)
        return super().maximum(H)

    def _over_edges(self, kind: str, X, heads: int = 1) -> None:
        self.operator.ledger.over_edges(Place(self.layer, self.pass_name), kind, X.shape[1], heads)


class DrySteps:
    """PrunedSpMM of which sizes alone are known."""

    def __init__(self, A: DryOperator, X, setting: Setting, ledger: Ledger):
        self.pool, self.dtype, self.device, self.node_n = (
            A.pool,
            A.dtype,
            A.device,
            np.zeros(setting.steps[0].m, np.int64),
        )
        self.layers = [
            DryOperator(rows, A.layout, ledger, f"A pruned {l}", ghost_nnz=setting.ghost_nnz)
            for l, rows in enumerate(setting.steps, start=1)
        ]
        for layer, rows in zip(self.layers, setting.steps):
            layer.set_selected(np.zeros(rows.n, np.int64))
        if setting.step_is_cached:
            first, rows = self.layers[0], setting.steps[0]
            first.fixed_input = FixedInput(X)
            first.fixed_input.products[first.name] = _features(setting, rows.n, setting.step_nnz, A.pool, ledger)
        elif (setting.is_cached and torch.is_tensor(X)) or setting.ghost_nnz is not None:
            self.layers[0].fixed_input = DryInput(X, ledger, has_products=torch.is_tensor(X))

    def at(self, layer: int, is_last: bool = False, operator: str | None = None, key=None) -> LayerView:
        """Return the operator of a layer."""
        return self.layers[layer - 1].at(layer, is_last, None, key)


def _plan(layout: Layout, n: int, sent: int, received: int) -> ExchangePlan:
    count = lambda rows: np.array([rows], np.int64)
    pack = DryCSR(sent, n, layout.dtype)
    return ExchangePlan.packed(layout.comm, pack, count(sent), count(received), layout.pool, layout)


def _primes() -> Iterator[int]:
    number = FIRST_PRIME
    while True:
        if all(number % d for d in range(3, int(number**0.5) + 1, 2)):
            yield number
        number += 2
