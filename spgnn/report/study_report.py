"""The page of a study: lines of `spgnn measure --json` or runs/analysis/volumes as tables, sweeps over k, volumes between ranks.

Shapes: P ranks; q sends, p receives.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..analysis.study import ENTRY_BYTES, sent_mb
from ..errors import UsageError
from . import style
from .json_files import SCHEME, SQUARE, read_lines
from .page import Page, filled
from .style import Picture

COUNTS = "n nnz total_rows max_send_rows max_recv_rows messages edge_cut bytes_per_epoch"
NUMBERS = "mean_send_rows max_over_mean_send replication_factor nnz_imbalance node_imbalance work_imbalance seconds"
ENTROPIES = "label_entropy label_entropy_min label_entropy_max"
NEEDED = dict.fromkeys(COUNTS.split(), "a whole number") | dict.fromkeys(NUMBERS.split(), "a number")
NEEDED |= dict.fromkeys(("k", "replication"), "a whole number above 0")
NEEDED |= {"method": "a name", "scheme": SCHEME}
KNOWN = {"graph": "a name", "width": "a whole number above 0", "layers": "a list of layers", "made": "an object"}
KNOWN |= dict.fromkeys([*ENTROPIES.split(), "replication_without_halo"], "a number or null") | {"rows_PP": SQUARE}
CASE = ("k", "scheme", "replication")  # the methods of a case are compared
# Volume of one SpMM per rank, as in the ICPP'24 paper's Table 2.
VOLUMES = {
    "k": "k", "method": "method", "scheme": "scheme", "replication": "c", "total_mb": "total MB",
    "average_send_mb": "average", "max_send_mb": "max", "send_imbalance_percent": "above %", "max_recv_mb": "received",
    "sum_mb": "summed", "messages": "messages", "bytes_per_epoch": "bytes per epoch",
}  # fmt: skip
PARTS = {
    "k": "k", "method": "method", "edge_cut": "edge cut", "replication_without_halo": "no halo",
    "replication_factor": "copies", "nnz_imbalance": "work", "node_imbalance": "nodes", "label_entropy": "entropy",
    "label_entropy_min": "least", "label_entropy_max": "largest", "seconds": "seconds",
}  # fmt: skip
# Of one SpMM: key -> title, unit.
SWEPT = {
    "total_mb": ("sent by all ranks", ""),
    "max_send_mb": ("largest send of a rank", ""),
    "max_over_mean_send": ("send imbalance", "largest / mean"),
    "replication_factor": ("replication factor, including halo", "copies per node"),
    "work_imbalance": ("work imbalance", "nonzeros, largest / mean"),
}
# How to read a picture, or the volumes between ranks.
METHODS_OVER_K = (
    "Lower is better. Volume grows with k for every method, less steeply for better partitions. An exchange waits "
    "for the rank that sends most, so the second panel decides the time of a run. A log scale has no 0."
)
SCHEMES_OVER_K = (
    "The same partitions under each exchange scheme. columns sends the rows that are read; cover sends rows and "
    "partial sums, as few as possible, and moves some work to the owner; broadcast sends every row to every rank."
)
BETWEEN_RANKS = (
    "that rank q (row) sends rank p (column), on one scale. A good partition has few strong cells. A strong "
    "row is a rank that sends too much, a strong column one that receives too much."
)


def read_study(path: str | Path) -> list[dict]:
    """Return the lines of a file of `spgnn measure --json` or runs/analysis/volumes, with Table 2's figures.

    Raises: InputError with the first line that is not one.
    """
    path = Path(path)
    records = read_lines(path, NEEDED, KNOWN, "a line of `spgnn measure --json`")
    for record in records:
        widest = max((layer.get("f_in") or 1 for layer in record.get("layers", ())), default=1)
        record |= sent_mb(record, record.get("width", widest)) | {"graph": record.get("graph", path.stem)}
    return records


def volumes(records: list[dict]) -> tuple[list[dict], dict[str, str]]:
    """Return rows and headings of the table of volumes: a row per case and method."""
    order = {record["scheme"]: i for i, record in reversed(list(enumerate(records)))}
    rows = sorted(records, key=lambda r: (r["k"], order[r["scheme"]], r["replication"]))
    without = () if any(r["replication"] > 1 for r in rows) else ("replication", "sum_mb")
    return rows, {key: text for key, text in VOLUMES.items() if key not in without}


def parts(records: list[dict]) -> tuple[list[dict], dict[str, str]]:
    """Return rows and headings of the table of partitions, which do not depend on the scheme: a row per (k, method)."""
    first: dict[tuple, dict] = {}
    for record in records:
        first.setdefault((record["k"], record["method"]), record)
    return filled(sorted(first.values(), key=lambda r: r["k"]), PARTS)


def pictures(records: list[dict]) -> dict[str, Picture]:
    """Return the pictures that the lines have data for, by name."""
    schemes = list(dict.fromkeys(r["scheme"] for r in records))
    same_c, shown = _compared(records)
    method = next((name for name in ("volume", "metis") if any(r["method"] == name for r in shown)), shown[0]["method"])
    of_method, drawn = [r for r in same_c if r["method"] == method], {}
    for name, lines, across, fixed, reading in (
        ("sweep", shown, "method", shown[0]["scheme"], METHODS_OVER_K),
        ("sweep_schemes", of_method if len(schemes) > 1 else [], "scheme", method, SCHEMES_OVER_K),
    ):
        if len({r["k"] for r in lines}) > 1 and any(r["total_rows"] for r in lines):
            heading = f"{across.title()}s over k"
            title = f"{heading}: {lines[0]['graph']}, {fixed}{_grid(lines)}\n{_one_spmm(lines)}"
            draw = lambda in_a_row, lines=lines, across=across: sweep(lines, across, in_a_row)
            drawn[name] = Picture(draw, title, heading, reading)
    return drawn


def between_ranks(records: list[dict], k: int | None = None) -> list[dict]:
    """Return the lines whose rows between ranks are shown, one per method.

    Args:   k  None: the largest up to 16, else the least.
    Raises: UsageError for a k that no line has.
    """
    ks = sorted({r["k"] for r in records})
    if k is not None and k not in ks:
        raise UsageError(f"k = {k} is not in the study; expected one of {', '.join(map(str, ks))}")
    k = k or max((k for k in ks if k <= 16), default=ks[0])
    cells = [r for r in _compared(records)[1] if r["k"] == k and len(r.get("rows_PP", ())) == k * r["replication"]]
    return cells if any(r["total_rows"] for r in cells) else []


def _compared(records: list[dict]) -> tuple[list[dict], list[dict]]:
    """Return the lines with the least c of the scheme that is shown, and those of them with that scheme."""
    schemes = {r["scheme"] for r in records}
    scheme = next(scheme for scheme in ("columns", "cover", "broadcast") if scheme in schemes)
    c = min(r["replication"] for r in records if r["scheme"] == scheme)
    same_c = [r for r in records if r["replication"] == c]
    return same_c, [r for r in same_c if r["scheme"] == scheme]


def study_page(records: list[dict], k: int | None = None) -> Page:
    """Return the page of a study."""
    first, methods = records[0], dict.fromkeys(r["method"] for r in records)
    ks = ", ".join(map(str, sorted({r["k"] for r in records})))
    lead = f"{first['n']:,} nodes, {first['nnz']:,} nonzeros; {len(methods)} methods, k = {ks}"
    page = Page(f"Partitions of {first['graph']} and their communication volume", lead)
    for picture in pictures(records).values():
        page.picture(picture)
    if cells := between_ranks(records, k):
        _add_heats(page, cells)
    rows, columns = volumes(records)
    page.section(
        "Volume of one SpMM",
        f"MB (10\u2076 bytes) of {first['width']:,} columns of float32, as in Table 2 of the ICPP'24 paper: sent by "
        "all ranks, average and max of a rank, how much the max is above the average, the most that a rank receives, "
        "and the sums over process rows of 1.5D, on k c ranks. Bytes per epoch are those of a training. The least of "
        "each k, scheme and c is marked.",
    )
    page.table(rows, columns, best=("total_mb", "max_send_mb", "max_recv_mb", "bytes_per_epoch"), group=CASE)
    rows, columns = parts(records)
    page.section(
        "Partitions",
        "Copies per node over all parts: own nodes and all their neighbours, as full-graph training needs; no halo: "
        "those of a vertex cut's edges. Work (nonzeros + 1 per row) and nodes: the largest part over the mean. Label "
        "entropy in bits, averaged over the parts by labelled nodes, least and largest. Seconds to partition.",
    )
    page.table(rows, columns, best=("edge_cut", "replication_factor"), group=("k",))
    if first.get("made"):
        page.section("How it was made")
        page.properties(
            {name: value if isinstance(value, int) else str(value) for name, value in first["made"].items()}
        )
    return page


def _add_heats(page: Page, cells: list[dict]) -> None:
    """Add the volume between each pair of ranks in one SpMM, a table per method, with one scale."""
    first, row_mb = cells[0], ENTRY_BYTES * cells[0]["width"] / 1e6
    top = row_mb * max(np.max(r["rows_PP"]) for r in cells)
    factor, unit = style.byte_unit(top)
    page.section(
        "Volume between ranks",
        f"k\u00a0=\u00a0{first['k']}, {first['scheme']}{_grid(cells)}, {_one_spmm(cells)}: {unit} {BETWEEN_RANKS}",
    )
    tables = {
        f"{r['method']}: {_amount(r['total_mb'])}": factor * row_mb * np.array(r["rows_PP"], float) for r in cells
    }
    page.heats(tables, [str(rank) for rank in range(len(first["rows_PP"]))], factor * top, style.number)


def sweep(records: list[dict], across: str, in_a_row: int = 2):
    """Draw the values of SWEPT over k, log-log, a line for each method or scheme; no panel of zeros.

    Args: across  "method" or "scheme", of which the records have several; in_a_row: panels.
    """
    of_scheme = "work_imbalance" if across == "method" else "replication_factor"
    swept = {key: of for key, of in SWEPT.items() if key != of_scheme and any(r[key] for r in records)}
    figure, axes = style.panels(len(swept), in_a_row)
    ks = sorted({r["k"] for r in records})
    beside = max((ks[-1] / ks[0]) ** 0.06, 1.05)
    last = {r[across]: r["max_send_mb"] for r in sorted(records, key=lambda r: r["k"])}
    names = sorted(last, key=lambda name: -last[name])  # the order of the lines at the right end
    looks = style.styles(names, style.METHODS if across == "method" else style.SCHEMES)
    for axis, (key, (title, unit)) in zip(axes, swept.items()):
        factor, unit = (1.0, unit) if unit else style.byte_unit(max(r[key] for r in records))
        for name in names:
            points = sorted((r["k"], factor * r[key] or np.nan) for r in records if r[across] == name)  # log has no 0
            colour, marker, line = looks[name]
            axis.loglog(
                *zip(*points), color=colour, marker=marker, linestyle=line, linewidth=1.5, markersize=6,
                markerfacecolor=colour if line == "-" else "none", label=name,
            )  # fmt: skip
        axis.set(xlabel="parts k", ylabel=unit, title=title, xlim=(ks[0] / beside, ks[-1] * beside))
        axis.margins(y=0.08)
        style.label_ticks(axis.xaxis, ks)
        style.label_ticks(axis.yaxis)
    senders = {r[across] for r in records if r["total_rows"]}
    texts = [name if name in senders else f"{name}: sends nothing" for name in names]
    style.legend(figure, axes[0].lines, texts, in_a_row, "largest send first")
    return figure


def _amount(mb: float) -> str:
    factor, unit = style.byte_unit(mb)
    return f"{style.number(factor * mb)}\u00a0{unit}"


def _grid(records: list[dict]) -> str:
    c = records[0]["replication"]
    return f", 1.5D with c = {c}" if c > 1 else ""


def _one_spmm(records: list[dict]) -> str:
    return f"one SpMM, {records[0]['width']:,} columns, {ENTRY_BYTES} bytes per entry"
