"""Layout: on which communicators, by which scheme and in which stages the products of a job run.

Shapes: P ranks, R = P/c block rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from ...cost.pairs import ProcessGrid
from ...dist import Communicator
from ..kernels.buffers import Pool
from ..operator.place import Place
from ..operator.timing import Operations
from .row_sum import RowSum
from .wire import Wire

PLAIN = (Wire("float32"), Wire("float32"))


@dataclass(slots=True, eq=False)
class Layout:
    """What all operators of one graph share.

    comm     all ranks; column: the process column, in which rows of H travel (all ranks for 1D).
    row_sum  adds up a process row; None for 1D.
    wires    types of the rows that travel, forward and backward.
    order    of every chain A H W: auto or spmm_first.
    """

    comm: Communicator
    grid: ProcessGrid
    column: Communicator
    row_sum: RowSum | None
    scheme: str
    pool: Pool
    dtype: torch.dtype
    threads: int = 0
    wires: tuple[Wire, Wire] = PLAIN
    ops: Operations = field(default_factory=Operations)
    order: str = "auto"
    why: str = ""  # of the scheme, where auto took it
    local: Communicator | None = None  # the ranks of this host, of two-tier

    def use_hosts(self) -> None:
        """Make the communicator of the ranks of this host. Collective."""
        self.local = self.comm.split(self.grid.hosts[self.comm.rank])

    @property
    def on_host(self) -> Communicator:
        """The communicator of the ranks of this host, of two-tier."""
        assert self.local is not None
        return self.local

    def use(self, ops: Operations) -> None:
        """Have all products and exchanges done by ops, such as one that times them."""
        self.ops = ops
        if self.row_sum is not None:
            self.row_sum.ops = ops

    def counted(self, place: Place, suffix: str = "") -> AbstractContextManager:
        """Return the context in which exchanges are counted under the label of a place."""
        return self.comm.traffic.label(place.label + suffix) if place.layer is not None else nullcontext()

    @property
    def block(self) -> int:
        """The block row of this rank."""
        return self.grid.row_of(self.comm.rank)

    @property
    def stages(self) -> Sequence[range]:
        """Groups of owners whose rows are fetched one after the other; none on one rank."""
        if self.comm.size == 1:
            return []
        return [range(self.comm.size)] if self.grid.c == 1 else [range(q, q + 1) for q in self.owners]  # Algorithm 2

    @property
    def column_number(self) -> int:
        return self.grid.column_of_rank(self.comm.rank)

    @property
    def owners(self) -> range:
        """The blocks that this rank's process column multiplies with."""
        return self.grid.stages(self.column_number)

    @property
    def is_counted(self) -> bool:
        """Whether this rank's rows count: of the c ranks of a process row, the first one's do."""
        return self.column_number == 0


def make_layout(
    comm: Communicator, grid: ProcessGrid, scheme: str, dtype: torch.dtype, pool: Pool, threads: int,
    order: str = "auto", wires=PLAIN,
) -> Layout:  # fmt: skip
    """Return the layout of P/c x c ranks. Collective."""
    shared = {"pool": pool, "dtype": dtype, "threads": threads, "wires": wires, "order": order}
    scheme = "cover" if scheme == "two-tier" and not grid.is_tiered else scheme
    if comm.size == 1:
        is_open = scheme in ("auto", "flat")
        scheme, why = ("columns", "columns: one rank exchanges nothing") if is_open else (scheme, "")
        return Layout(comm, grid, comm, None, scheme, why=why, **shared)
    if grid.c == 1:
        layout = Layout(comm, grid, comm, None, scheme, **shared)
        if scheme == "two-tier":
            layout.use_hosts()
        return layout
    i, j = grid.row_of(comm.rank), grid.column_of_rank(comm.rank)
    column, row = comm.split(j, i), comm.split(i, j)
    return Layout(comm, grid, column, RowSum(row, grid.column_of(i), pool), scheme, **shared)
