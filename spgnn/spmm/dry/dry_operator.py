"""DryOperator: primitives of an operator that allocate, multiply nothing and write into a Recording.

Shapes: n rows out, m own rows in, s rows sent, g ghost rows, f rows in flight at once, F features.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from ...cost.pairs import flying
from ...cost.schedule import row_bytes
from ...errors import UsageError
from ..edges.edge_table import edge_features_of
from ..exchange.ghosts import ColumnBlock, check_rows, rounded
from ..kernels.buffers import BufferPool, sum_dtype
from ..kernels.csr import LocalCSR
from ..operator.dist_spmm import DistSpMM
from ..operator.facts import FixedInput, of_key
from ..operator.features import AnyRows, SparseRows
from ..operator.place import OUTSIDE, Place
from ..operator.protocol import Operator
from ..operator.pruning import PrunedSpMM
from ..operator.timing import Operations
from ..operator.view import LayerView, current_pass
from .recording import META, Recording

if TYPE_CHECKING:
    from ..exchange.row_sum import RowSum


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a dry run depends on: how the graph is distributed, and what of X is cached.

    features       columns of X.
    is_exchanged   there are several ranks.
    steps          hops of each layer of a pruned training step, 0 or 1; (): all rows are computed.
    operator       normalisation of A in the first layer, and of layers that name none.
    is_cached      A X was computed before; step_is_cached: and a pruned step reads it; has_ghosts: ghost rows of X are.
    powers         the j > 1 of which A^j X of a sparse X is cached.
    holds_own      False: this rank is one of a process row that does not multiply with its own columns.
    edge_features  columns of the attributes of edges; None: the graph has none.
    has_gradient   X requires a gradient; is_multilabel: of the loss.
    counts         {name: number of rows or nonzeros}, where they are known: n, s, g, f of the operator; T0 ... TL
                   rows that the layers of a pruned step read and give, s1, g1, f1 ... of its layers; edges,
                   edges1 ... nonzeros of A on this rank, own_nnz, ghost_nnz and sender_nnz of its blocks; x_nnz,
                   cached_nnz, step_nnz, x_ghost_nnz of sparse X, A X, their rows that a pruned step reads and ghost
                   rows of X; kept_nnz of A X where it is held; power 2 ... of A^2 X; n_train rows of a multi-label loss.
    """

    features: int
    is_exchanged: bool = False
    steps: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    wires: tuple[str, str] = ("float32", "float32")
    order: str = "auto"
    operator: str = "gcn"
    replication: int = 1
    holds_own: bool = True
    is_sparse: bool = False
    is_cached: bool = True
    step_is_cached: bool = True
    has_ghosts: bool = False
    powers: tuple[int, ...] = ()
    edge_features: int | None = None
    has_gradient: bool = False
    is_multilabel: bool = False
    counts: dict[str, int] = field(default_factory=dict, compare=False)


def setting_of(A: DistSpMM, X: AnyRows, step: PrunedSpMM | None = None, n_train: int | None = None) -> Setting:
    """Return the setting of this rank.

    Args: step     PrunedSpMM of a training step, where rows are pruned.
          n_train  rows of a multi-label loss.
    """
    counts, powers, (forward, backward) = {"n": A.n} | exchanged_rows(A), [], A.layout.wires
    first = step.layers[0].kept if step is not None and step.is_kept else None
    if isinstance(X, SparseRows):
        products = {} if A.fixed_input is None else A.fixed_input.products
        made = {of_key(key): S for key, S in products.items() if S is not None}
        powers = [j for name, j in made if name == A.name and j > 1]
        read = None if step is None else step.X if first is None else first
        left = {"x_nnz": X, "cached_nnz": A.kept, "step_nnz": read} | {f"power {j}": made[A.name, j] for j in powers}
        left["kept_nnz"] = A.kept
        counts |= {name: S.csr.nnz for name, S in left.items() if isinstance(S, SparseRows)}
        counts["x_ghost_nnz"] = X.csr.nnz * A.g // max(A.m, 1)
    if n_train is not None:
        counts["n_train"] = n_train
    for number, layer in enumerate(() if step is None else step.layers, start=1):
        counts |= {f"T{number - 1}": layer.m, f"T{number}": layer.n} | exchanged_rows(layer, str(number))
    return Setting(
        features=X.shape[1],
        is_exchanged=bool(A.stages),
        steps=() if step is None else step.hops,
        dtype=A.dtype,
        wires=(forward.name, backward.name),
        order=A.order,
        operator=A.name,
        replication=1 if A.row_sum is None else A.row_sum.comm.size,
        holds_own=A.holds_own,
        is_sparse=X.is_sparse,
        is_cached=A.kept is not None or bool(powers) or (not X.is_sparse and A.fixed_input is not None),  # or will be
        step_is_cached=first is not None,
        has_ghosts=A.fixed_input is not None,
        powers=tuple(powers),
        edge_features=edge_features_of(A),
        has_gradient=isinstance(X, torch.Tensor) and X.requires_grad,
        is_multilabel=n_train is not None,
        counts=counts,
    )


def exchanged_rows(A: DistSpMM, suffix: str = "") -> dict[str, int]:
    """Return the rows that an operator sends, reads and has in flight, and its nonzeros, in all and by block."""
    plans = [stage.plan for stage in A.stages]
    read = [plan.g for plan in plans]
    rows = {"s": sum(plan.sent_rows for plan in plans), "g": A.g if A.stages else 0, "f": flying(read)}
    rows |= {"edges": A.nnz, "own_nnz": A.A_oo.nnz, "ghost_nnz": sum(stage.A.nnz for stage in A.stages)}
    rows["sender_nnz"] = sum(plan.moved_nnz for plan in plans)
    return {name + suffix: count for name, count in rows.items()}


def inputs_of(setting: Setting, record: Recording) -> tuple:
    """Return (A, X of an evaluation, A, X of a training step)."""
    n = record.number("n")
    A = DryOperator(setting, record, n, n, setting.operator, "" if setting.is_exchanged else None)
    X = _features(setting, record, n, "x_nnz")
    if setting.is_cached or setting.has_ghosts:
        A.fixed_input = DryInput(X, record)
    if not setting.steps:
        return A, X, A, X
    rows = [record.number(f"T{len(setting.steps)}")]
    for number in range(len(setting.steps) - 1, -1, -1):
        rows.insert(0, record.number(f"T{number}") if setting.steps[number] else rows[0])
    hops = list(setting.steps)
    if setting.step_is_cached:  # the first layer takes rows of A X, and exchanges nothing
        rows[0], hops[0] = n, 0
    suffix = lambda l: str(l) if setting.is_exchanged and hops[l - 1] else None
    layers = [
        DryOperator(setting, record, rows[l], rows[l - 1], f"A pruned {l}", suffix(l), l) for l in range(1, len(rows))
    ]
    step_X = X if setting.step_is_cached else _features(setting, record, rows[0], "step_nnz")
    first = layers[0]
    if setting.step_is_cached:
        first.fixed_input = FixedInput(X)
        first.fixed_input.products[first.name] = _features(setting, record, first.n, "step_nnz")
    elif A.fixed_input is not None and (setting.has_ghosts or not setting.is_sparse):
        first.fixed_input = DryInput(step_X, record, has_products=not setting.is_sparse)
    at = lambda layer, is_last=False, operator=None, key=None: layers[layer - 1].at(layer, is_last, None, key)
    step = SimpleNamespace(at=at, pool=record.heap, dtype=A.dtype, device=META, node_n=first.node_n)
    return A, X, step, step_X


def _features(setting: Setting, record: Recording, n: int, name: str):
    if setting.is_sparse:
        return DryRows((n, setting.features), name, setting.dtype, record)
    X = torch.empty((n, setting.features), dtype=setting.dtype, device=META)
    record.heap.take(X)
    return X.requires_grad_(setting.has_gradient and name == "x_nnz")


class DryOperator(Operator):
    """An operator (n, m) that multiplies nothing.

    Args: suffix  of its count names s, g and f; None: nothing is exchanged.
          step    suffix of the count names of nonzeros: the number of the layer in a pruned step.
    """

    device, threads, sent_so_far = META, 0, 0
    relations = np.zeros(0, np.int64), 1  # which nonzeros have which is not known
    dtype, order, holds_own = (property(attrgetter(f"setting.{name}")) for name in ("dtype", "order", "holds_own"))

    def __init__(self, setting: Setting, record: Recording, n: int, m: int, name: str, suffix: str | None, step=""):
        self.setting, self.record, self.name = setting, record, name
        self.pool = cast(BufferPool, record.heap)  # which has its calls, and no memory
        self.ops, self.n, self.m = Operations(), n, m
        self.s, self.g, self.f = (record.number(x + suffix) for x in "sgf") if suffix is not None else (0, 0, 0)
        t = record.together(m, self.g) if self.g else m
        self.n_edges = record.number(f"edges{step}")
        if setting.edge_features is not None:
            self.edge_attr = torch.empty(self.n_edges, setting.edge_features, dtype=sum_dtype(self.dtype), device=META)
        self.node_n, self.out_ids, self.column_ids = (np.zeros(rows, np.int64) for rows in (m, n, t))
        self.selected: np.ndarray | None = None if name == setting.operator else np.zeros(n, np.int64)
        self.selection = None if self.selected is None else torch.empty(n, dtype=torch.int64, device=META)
        c = setting.replication
        row = SimpleNamespace(comm=SimpleNamespace(size=c, rank=0, all_reduce=lambda x: x), holder=0)
        self.row_sum: RowSum | None = cast(
            "RowSum | None", row if c > 1 else None
        )  # its size and its holder are read, nothing else
        nothing = {"nnz": 0, "indptr": np.zeros(n + 1, np.int64), "indices": np.zeros(0, np.int32), "threads": 0}
        block = lambda columns: cast(LocalCSR, SimpleNamespace(shape=(n, columns), has_short_rows=True, **nothing))
        self.column_blocks: tuple[ColumnBlock, ...] = (ColumnBlock(block(m), self.node_n),)
        if self.g:
            self.column_blocks += (ColumnBlock(block(self.g), np.zeros(self.g, np.int64), True, m),)

    def at(self, layer: int | None = None, is_last: bool = False, operator: str | None = None, key=None) -> LayerView:
        """Return this operator, or another normalisation, as a layer sees it."""
        self.record.layer = layer
        return DryView(self.with_norm(operator), layer, current_pass(), is_last, self, key)

    def with_norm(self, how: str | None) -> DryOperator:
        """Return the operator of another normalisation: of the same sizes, with a cached A X of its own."""
        if how is None or how == self.name:
            return self
        other = copy.copy(self)
        other.name = how
        return other

    def apply(
        self, H_mF, bias_F=None, relu: bool = False, dtype=None, place: Place = OUTSIDE, add_nF=None, ghosts_gF=None
    ) -> AnyRows:
        """Record A H."""
        if ghosts_gF is not None:
            return self._apply_here(H_mF, dtype or self.dtype, place)
        if H_mF.is_sparse:
            return self._apply_sparse(H_mF, place)
        check_rows(H_mF, self.m, 0)
        self.record.product(place, H_mF.shape[1])
        F, dtype, wide = H_mF.shape[1], dtype or self.dtype, sum_dtype(self.dtype)
        flight = self._flight(lambda: self.pool.empty(self.s, F, dtype=H_mF.dtype), self.f, 0)
        Z_nF = self.pool.empty(self.n, F, dtype=self.record.summed(H_mF, wide if self.g else dtype))
        _held = flight()  # both are held until the end, as in DistSpMM
        if self.row_sum is not None:
            self.pool.empty(self.n, F, dtype=wide)
        return rounded(self.pool, Z_nF, dtype)

    def _apply_here(self, H_mF, dtype: torch.dtype, place: Place) -> torch.Tensor:
        """Return A H of cached rows, which are recorded where they are read."""
        is_whole = not self.g and self.row_sum is None
        self.record.summed(H_mF, self.dtype)
        Z_nF = self.pool.empty(self.n, H_mF.shape[1], dtype=dtype if is_whole else sum_dtype(self.dtype))
        if self.row_sum is not None:
            Z_nF = self.combine(Z_nF, None, place)
        return rounded(self.pool, Z_nF, dtype)

    def adjoint(self, G_nF: torch.Tensor, place: Place = OUTSIDE, add_mF: torch.Tensor | None = None) -> torch.Tensor:
        """Record A' G + add."""
        check_rows(G_nF, self.n, 0)
        self.record.product(place, G_nF.shape[1])
        F, dtype = G_nF.shape[1], sum_dtype(self.dtype) if self.g else self.dtype
        flight = self._flight(lambda: self.pool.empty(self.f, F, dtype=self.dtype), self.s, 1)
        out_mF = self.pool.empty(self.m, F, dtype=self.record.summed(G_nF, dtype))
        _held = flight()
        return rounded(self.pool, out_mF, self.dtype)

    def adjoint_columns(self, G_nF: torch.Tensor, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, torch.Tensor]]:
        """Record the gradients of cached rows."""
        self.record.product(place, G_nF.shape[1], "cached ghosts")
        for block in self.column_blocks:
            if block.is_ghost or self.holds_own:
                yield block, self.pool.empty(block.A.shape[1], G_nF.shape[1], dtype=self.dtype)

    def over_columns(self, H_mF: Any, place: Place = OUTSIDE) -> Iterator[tuple[ColumnBlock, Any]]:
        """Record the rows of own and ghost columns."""
        self.record.product(place, H_mF.shape[1], "ghosts")
        own, *ghosts = self.column_blocks
        if place.pass_name == "setup":  # of X: its ghost rows are counted elsewhere
            yield own, H_mF
            yield from ((block, self._ghosts_of(H_mF)) for block in ghosts)
            return
        check_rows(H_mF, self.m, 0)
        flight = self._flight(lambda: self.pool.empty(self.s, H_mF.shape[1], dtype=H_mF.dtype), self.g, 0)
        yield own, H_mF
        rows_gF = flight()
        for block in ghosts:
            assert rows_gF is not None  # of ghosts that are there
            yield block, rows_gF

    def _ghosts_of(self, X: AnyRows) -> AnyRows:
        if X.is_sparse:
            return DryRows((self.g, X.shape[1]), "x_ghost_nnz", self.dtype, self.record)
        return torch.empty((self.g, X.shape[1]), dtype=X.dtype, device=META)

    def add_columns(self, rows_of: Callable, dtype: torch.dtype, place: Place = OUTSIDE) -> torch.Tensor:
        """Record the adjoint of over_columns."""
        flight = self._flight(lambda: rounded(self.pool, rows_of(True), dtype), self.s, 1)
        out_mF = rows_of(False)
        flight()
        self.record.product(place, out_mF.shape[1], "ghosts")
        return rounded(self.pool, out_mF, dtype)

    def combine(self, Z_nF: torch.Tensor, add: Callable | None = None, place: Place = OUTSIDE) -> torch.Tensor:
        """Record a sum over the process row."""
        if self.row_sum is not None:
            size = sum_dtype(self.dtype).itemsize
            self.record.product(place, Z_nF.shape[1] * Z_nF.element_size() // size, "sum")
            self.pool.empty(*Z_nF.shape, dtype=Z_nF.dtype)
        return Z_nF

    def _flight(
        self, rows_of: Callable[[], torch.Tensor], received: int, wire: int
    ) -> Callable[[], torch.Tensor | None]:
        """Begin an exchange of rows, and return what ends it and returns those received; it holds the buffers."""
        if not self.g:
            return lambda: None
        rows_sF, pool, name = rows_of(), self.pool, self.setting.wires[wire]
        (sent, F), dtype = rows_sF.shape, rows_sF.dtype
        if name == "float32":
            recv = pool.empty(received, F, dtype=dtype)
            return lambda: (recv, rows_sF)[0]
        width = row_bytes(F, dtype.itemsize, name)
        coded = [pool.empty(rows, width, dtype=torch.uint8) for rows in (sent, received)]
        return lambda: (pool.empty(received, F, dtype=dtype), rows_sF, coded)[0]

    def _apply_sparse(self, X: SparseRows, place: Place) -> SparseRows:
        """Return A X where it is cached."""
        if place.pass_name != "setup":
            raise UsageError("a sparse X is multiplied with A in every step: its nonzeros are not known without data")
        assert isinstance(X, DryRows)
        power = X.power + 1
        name = "cached_nnz" if power == 1 else f"power {power}" if power in self.setting.powers else X.name
        return DryRows((self.n, X.shape[1]), name, self.dtype, self.record, power)

    def stays_sparse(self, S: SparseRows, place: Place = OUTSIDE) -> bool:
        """Return whether A X, or A^j X, is cached."""
        assert isinstance(S, DryRows)
        return S.power < max(int(self.setting.is_cached), *self.setting.powers, 0)


class DryView(LayerView):
    """A DryOperator in one layer."""

    def select(self, H):
        selected = self.operator.selected
        if selected is None:
            return H
        return H.rows(selected) if H.is_sparse else H[self.operator.selection]

    def power(self, H, j: int):
        if self.is_cached(H, j):
            self._record(H.shape[1], "cached")
        return super().power(H, j)

    def chain(self, H, W_FC, bias_C=None, relu: bool = False, add=None, power: int = 1, V_FC=None) -> torch.Tensor:
        way, record, shape = self.way(H, W_FC.shape[1], power=power), self.operator.record, tuple(W_FC.shape)
        record.chain = (way.order, shape, way.reason)
        if way.is_cached:
            self._record(shape[0], "cached")
        return super().chain(H, W_FC, bias_C, relu, add, power, V_FC)

    def attend(self, X, left_DK, *args, **options) -> torch.Tensor:
        self._record(X.shape[1], "attend", heads=left_DK.shape[1])
        return super().attend(X, left_DK, *args, **options)

    def attend2(self, left_mKD, right, a_DK, *args, **options) -> torch.Tensor:
        self._record(right.shape[1], "attend2", heads=a_DK.shape[1])
        return super().attend2(left_mKD, right, a_DK, *args, **options)

    def maximum(self, H, relu: bool = False) -> torch.Tensor:
        self._record(H.shape[1], "maximum")
        return super().maximum(H, relu)

    def _record(self, width: int, kind: str, **more) -> None:
        self.operator.record.product(Place(self.layer, self.pass_name), width, kind, **more)


class DryInput(FixedInput):
    """A fixed input X, whose cached ghost rows are recorded where they are read."""

    def __init__(self, X, record: Recording, has_products: bool = True):
        super().__init__(X, has_products)
        self.record = record

    def ghosts(self, A) -> AnyRows:
        """Return the ghost rows of X."""
        ghosts_gF = super().ghosts(A)
        self.record.product(Place(A.layer, A.pass_name), self.X.shape[1], "cached ghosts")
        return ghosts_gF


class DryRows(SparseRows):
    """Sparse rows (n, F) of A^power X, whose number of nonzeros has a name."""

    def __init__(self, shape: tuple[int, int], name: str, dtype: torch.dtype, record: Recording, power: int = 0):
        self.csr = cast(LocalCSR, SimpleNamespace(shape=shape, dtype=dtype))
        self.name, self.record, self.power = name, record, power
        self.pool = cast(BufferPool, record.heap)

    def rows(self, chosen: np.ndarray) -> SparseRows:
        """Return S[chosen]."""
        return DryRows((len(chosen), self.shape[1]), self.name, self.dtype, self.record)

    def times(self, W_FC, bias_C=None, relu: bool = False, dtype=None, add_nC=None) -> torch.Tensor:
        """Record S W."""
        self.record.weights(tuple(W_FC.shape), (self.name,), W_FC.shape[1])
        return self.pool.empty(self.shape[0], W_FC.shape[1], dtype=dtype or self.dtype)

    def transposed_times(self, G_nC) -> torch.Tensor:
        """Record S' G."""
        F, C = self.shape[1], G_nC.shape[1]
        self.record.weights((F, C), (self.name,), C)
        return torch.empty(F, C, dtype=sum_dtype(self.dtype), device=META)

    def dropout(self, rate: float, key, node_n) -> SparseRows:
        """Return as many nonzeros."""
        self.record.reads_input = True
        return DryRows(self.shape, self.name, self.dtype, self.record)
