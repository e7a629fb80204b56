"""What `verify` found, as a table to read and records to use."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

CHECKS = ("evaluation", "training", "loss", "gradient", "buffers")


@dataclass(frozen=True, slots=True)
class Checked:
    """The largest relative differences from one rank, on some ranks; None: not compared.

    replication  c of 1.5D; edges: given, or one-way: of a symmetric graph, some edges in one direction alone.
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
