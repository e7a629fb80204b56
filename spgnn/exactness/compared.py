"""Passes of several ranks compared with those of one rank: how much every tensor differs, and which module is first; what
`verify` found, as a table to read and records to use.

Shapes: N nodes, n own rows, E nonzeros of a rank, t own and ghost columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from .watched import Call, RankPass, Rows

if TYPE_CHECKING:
    import pandas


FLOOR = 1e-4  # of the largest number of a call, or gradient of all: what is smaller is compared with it


@dataclass(frozen=True)
class Difference:
    """The largest relative difference of a tensor, the first node where it is above the tolerance, and the ranks."""

    size: float = 0.0
    node: int | None = None
    ranks: frozenset[int] = frozenset()


NONE = Difference()


@dataclass(frozen=True)
class Differs:
    """How the tensors of one call differ: those that it reads and returns, and their gradients."""

    inputs: Difference
    outputs: Difference
    input_gradients: Difference
    output_gradients: Difference


@dataclass(frozen=True)
class Compared:
    """All that is compared of a pass on several ranks; calls: as those of one rank are numbered."""

    calls: list[Differs]
    loss: Difference
    gradients: dict[str, Difference]
    buffers: dict[str, Difference]

    @property
    def outputs(self) -> float:
        """The largest difference of what modules return."""
        return max((call.outputs.size for call in self.calls), default=0.0)

    @property
    def gradient(self) -> float:
        """The largest difference of a gradient, of parameters and of rows."""
        rows = [max(call.input_gradients.size, call.output_gradients.size) for call in self.calls]
        return max([of.size for of in self.gradients.values()] + rows, default=0.0)


def compare(one: RankPass, ranks: list[RankPass], tolerance: float) -> Compared:
    """Return how ranks differ from one rank."""
    slopes = [rows.gradient for call in one.calls for rows in call.inputs + call.outputs if rows.gradient is not None]
    steepest = FLOOR * max((np.abs(G).max(initial=0) for G in slopes), default=0)
    calls = [_call(call, one, ranks, tolerance, steepest) for call in one.calls]
    counted = [of for of in ranks if of.is_counted]
    loss = _whole(np.array(one.loss), [np.array(sum(of.loss for of in counted))], tolerance)
    floor = FLOOR * max((np.abs(G).max(initial=0) for G in one.gradients.values()), default=0)
    gradients = {}
    for name, G in one.gradients.items():
        total = sum((of.gradients[name] for of in counted if name in of.gradients), np.zeros_like(G))
        gradients[name] = _whole(G, [total], tolerance, floor)
    buffers = {name: _whole(B, [of.buffers[name] for of in ranks], tolerance) for name, B in one.buffers.items()}
    return Compared(calls, loss, gradients, buffers)


def _call(call: Call, one: RankPass, ranks: list[RankPass], tolerance: float, steepest: float) -> Differs:
    """Return how a call differs, and its gradients, by steepest at least; NONE where a rank does not make it, as of modules that see rows in chunks."""
    others = [of.by_key[call.key] for of in ranks if call.key in of.by_key]
    sides = ("inputs", "outputs")
    is_alike = all(len(getattr(of, side)) == len(getattr(call, side)) for of in others for side in sides)
    if len(others) < len(ranks) or not is_alike:
        return Differs(NONE, NONE, NONE, NONE)
    tensors = [rows.value for rows in call.inputs + call.outputs]
    floor = FLOOR * max((np.abs(T).max(initial=0) for T in tensors), default=0)

    def largest(side: str, what: str, floor: float) -> Difference:
        found = NONE
        for place in range(len(getattr(call, side))):
            of = [getattr(other, side)[place] for other in others]
            new = _rows(getattr(call, side)[place], of, what, one, ranks, (tolerance, floor))
            found = new if new.size > found.size else found
        return found

    values = [largest(side, "value", floor) for side in sides]
    gradients = [largest(side, "gradient", steepest) for side in sides]
    return Differs(*values, *gradients)


def kind_of(rows: Rows, of: Iterable[Rows], one: RankPass, ranks: list[RankPass]) -> str:
    """Return whether rows are of nodes, nonzeros, columns (own ones first) or the same on all ranks; "" for other arrays."""
    lengths = [(len(one.own_n), one, rows.value), *((len(r.own_n), r, x.value) for r, x in zip(ranks, of))]
    if all(len(T) == n for n, _, T in lengths):
        return "nodes"
    if all(_orders(x, r) for x, r in zip((rows, *of), (one, *ranks))):
        return "nonzeros"
    if all(len(T) in r.columns for _, r, T in lengths):
        return "columns"
    return "same" if len({T.shape for _, _, T in lengths}) == 1 else ""


def _rows(
    rows: Rows, of: list[Rows], what: str, one: RankPass, ranks: list[RankPass], limits: tuple[float, float]
) -> Difference:
    """Return how one tensor of a call, or its gradient, differs. Args: what  value or gradient; limits: tolerance, floor."""
    kind, expected = kind_of(rows, of, one, ranks), getattr(rows, what)
    got = [getattr(x, what) for x in of]
    if expected is None or not kind or (what == "gradient" and kind in ("columns", "same")):
        return NONE
    if kind == "same":
        return _whole(expected, got, *limits)
    found, scale = NONE, max(np.abs(expected).max(initial=0), limits[1]) or 1.0
    for rank, (mine, T) in enumerate(zip(ranks, got)):
        T = np.zeros((len(of[rank].value), *expected.shape[1:])) if T is None else T  # no loss here depends on it
        if T.shape[1:] != expected.shape[1:]:
            return Difference(np.inf, None, frozenset(range(len(ranks))))
        if kind == "nonzeros":
            wholes = _orders(rows, one)[: None if rows.edges else 1]
            orders = [(order, _places(all_E, order)) for all_E in wholes for order in _orders(of[rank], mine)]
            orders = [(order, places) for order, places in orders if places is not None]
            if not orders:  # rows of other edges
                return NONE
            order, places = min(orders, key=lambda of: _largest(T - expected[of[1]]).sum())
            ids = order // len(one.own_n)
        else:
            T = T[: len(mine.own_n)]
            order = ids = places = mine.own_n
        apart_nF = T - expected[places]
        if kind == "nonzeros" and what == "gradient":  # of equal edges one may have the maximum
            _, group = np.unique(order, return_inverse=True)
            sums_nF = np.zeros(apart_nF.shape)
            np.add.at(sums_nF, group, apart_nF)
            apart_nF = sums_nF[group]
        apart_n = _largest(apart_nF) / scale
        if (apart_n > limits[0]).any():
            node = int(ids[apart_n > limits[0]].min())
            node = node if found.node is None else min(node, found.node)
            found = Difference(max(found.size, float(apart_n.max())), node, found.ranks | {rank})
        elif len(apart_n) and apart_n.max() > found.size:
            found = Difference(float(apart_n.max()), found.node, found.ranks)
    return found


def _orders(rows: Rows, of: RankPass) -> list[np.ndarray]:
    """Return the edges that rows may be: of A, own columns first, or of a row's columns; of a wrapped module those it made."""
    if rows.edges is not None:
        return rows.edges
    keys = of.nonzeros.get(len(rows.value))
    return [] if keys is None else [keys, np.sort(keys)]


def _largest(difference_nF: np.ndarray) -> np.ndarray:
    """Return the largest difference of each row, infinite where one is no number."""
    flat_nF = np.abs(difference_nF).reshape(len(difference_nF), int(np.prod(difference_nF.shape[1:])))
    return np.nan_to_num(flat_nF.max(axis=1, initial=0), nan=np.inf)


def _places(all_E: np.ndarray, keys_e: np.ndarray) -> np.ndarray | None:
    """Return where the nonzeros of a rank are among those of one rank, None if not; of equal ones the first is the first."""
    order_E, order_e = np.argsort(all_E, kind="stable"), np.argsort(keys_e, kind="stable")
    first_E, sorted_e = all_E[order_E], keys_e[order_e]
    nth_e = np.arange(len(sorted_e)) - np.searchsorted(sorted_e, sorted_e)
    places_e = np.empty(len(keys_e), np.int64)
    found_e = np.searchsorted(first_E, sorted_e) + nth_e
    if (found_e >= len(all_E)).any() or not np.array_equal(first_E[found_e], sorted_e):
        return None
    places_e[order_e] = order_E[found_e]
    return places_e


def _whole(expected: np.ndarray, got: list[np.ndarray], tolerance: float, floor: float = 0.0) -> Difference:
    """Return how arrays that are the same on all ranks differ."""
    scale = max(np.abs(expected).max(initial=0), floor) or 1.0
    sizes = [float(np.nan_to_num(np.abs(T - expected), nan=np.inf).max(initial=0) / scale) for T in got]
    return Difference(max(sizes, default=0.0), None, frozenset(r for r, size in enumerate(sizes) if size > tolerance))


def first_forward(calls: list[Call], compared: Compared, tolerance: float) -> int:
    """Return the call that ended first of those that read what one rank reads and return something else."""
    differs = [k for k, of in enumerate(compared.calls) if of.outputs.size > tolerance]
    own = [k for k in differs if compared.calls[k].inputs.size <= tolerance]
    return min(own or differs, key=lambda k: calls[k].end)


def first_backward(
    calls: list[Call], inputs: set[int], outputs: set[int], names: Iterable[str]
) -> tuple[int | None, str | None]:
    """Return the call nearest to the loss whose own gradients are wrong, and a parameter of it that has a wrong one.

    Args: inputs, outputs  calls with a wrong gradient of what they read, of what they returned.
          names            parameters with a wrong gradient.
    """
    owner = {name: name.rpartition(".")[0] for name in names}
    ends = sorted(range(len(calls)), key=lambda k: -calls[k].end)
    wrong = [k for k in ends if k in inputs or calls[k].path in owner.values()]
    own = [k for k in wrong if k not in outputs]
    inner = [k for k in own if not any(_is_in(calls[other].path, calls[k].path) for other in own)]
    if not inner:  # what a module computes between the calls of its children
        return (calls[wrong[0]].parent if wrong else None), next(iter(owner), None)
    return inner[0], next((name for name, path in owner.items() if path == calls[inner[0]].path), None)


def _is_in(path: str, outer: str) -> bool:
    return path != outer and (not outer or path.startswith(f"{outer}."))


CHECKS = ("evaluation", "training", "loss", "gradient", "buffers")


@dataclass(frozen=True, slots=True)
class Checked:
    """The largest relative differences from one rank, on some ranks; None: not compared.

    replication  c of 1.5D; edges: given; one-way: of a symmetric graph, some edges in one direction alone; on disk: trained out of
                 core, in random parts, a model that can be.
    evaluation, training  of what modules return; loss; gradient: of parameters and rows; buffers: after the training pass.
    note         why the ranks did not run.
    """

    ranks: int
    replication: int
    edges: str
    evaluation: float | None = None
    training: float | None = None
    loss: float | None = None
    gradient: float | None = None
    buffers: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """The first thing that depends on the ranks.

    module      its path, as named_modules has it; "" is the model itself. parameter: with a wrong gradient.
    check       of CHECKS; or slope: the gradient of one rank does not fit its loss; or error.
    difference  relative; ranks: on which it is above the tolerance; node: the first, by the graph's own id.
    reason      the likely one.
    """

    module: str
    check: str
    difference: float
    ranks: tuple[int, ...]
    node: int | str | None
    parameter: str | None
    reason: str

    def __str__(self) -> str:
        what = {"evaluation": "output", "training": "output in training", "slope": "gradient", "error": "call"}
        what = what.get(self.check, self.check.removesuffix("s")) + (f" of {self.parameter}" if self.parameter else "")
        size = "" if self.check == "error" else f" by {self.difference:.2g} (relative)"
        where = f", first at node {self.node}" if self.node is not None else ""
        on = "1 rank" if self.ranks == (1,) else f"{', '.join(map(str, self.ranks))} ranks"
        of = f"module {self.module}" if self.module else "the model itself"
        return f"{of}: wrong {what}{size} on {on}{where}\nlikely reason: {self.reason}"


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """What `verify` found; print it to read it.

    rows     a Checked for each world of ranks; finding: the first thing that is wrong, or None.
    slope    how far the gradient of one rank is from differences of its loss, relative.
    outside  how far wrapped modules are from themselves outside of wrap, relative; None: there are none.
    """

    graph: str
    rows: tuple[Checked, ...]
    finding: Finding | None
    slope: float
    tolerance: float
    outside: float | None = None

    @property
    def ok(self) -> bool:
        """Whether everything that was compared is the same on any ranks."""
        return self.finding is None

    def __str__(self) -> str:
        lines = [f"{self.graph}: largest relative differences from one rank (tolerance {self.tolerance:g})"]
        lines.append(f"{'ranks':>5} {'c':>2}  {'edges':8}" + "".join(f"{check:>12}" for check in CHECKS))
        for row in self.rows:
            cells = (getattr(row, check) for check in CHECKS)
            shown = "".join(f"{'-' if cell is None else f'{cell:.1e}':>12}" for cell in cells)
            lines.append(
                f"{row.ranks:5} {row.replication:2}  {row.edges:8}" + (f"  {row.note[:58]}" if row.note else shown)
            )
        if self.ok:
            lines.append(f"gradient on one rank against differences of the loss: {self.slope:.1e}")
            if self.outside is not None:
                lines.append(f"wrapped modules against themselves outside of wrap: {self.outside:.1e}")
            lines.append("exact on these ranks")
        return "\n".join(lines if self.ok else [*lines, str(self.finding)])

    __repr__ = __str__  # a notebook shows it

    def to_frame(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame([asdict(row) for row in self.rows], columns=list(Checked.__dataclass_fields__))
