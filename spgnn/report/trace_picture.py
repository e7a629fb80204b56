"""The timeline of one epoch as a picture: the phases of each rank, and below them its exchanges in flight."""

from __future__ import annotations

from pathlib import Path

from ..errors import InputError
from ..timeline.trace import read_trace
from .style import new_figure

# In the order of the legend; colours that colour-blind readers can distinguish (Okabe & Ito 2008).
COLOURS = {
    "own SpMM": "#0072B2",
    "ghost SpMM": "#56B4E9",
    "GEMM": "#F0E442",
    "pack": "#CC79A7",
    "unpack": "#CC79A7",
    "exchange wait": "#D55E00",
    "sum over process row": "#E69F00",
    "all-reduce": "#E69F00",
    "optimiser": "#8C6BB1",
    "exchange": "#009E73",
}
REST = "#D9D9D9"  # all other phases
NAMES = {"exchange": "exchange in flight", "pack": "pack, unpack", "unpack": "pack, unpack"}
NAMES |= dict.fromkeys(("sum over process row", "all-reduce"), "sums over ranks")
BAR, FLIGHT, GAP = 1.0, 0.42, 0.55  # heights: phases, exchanges in flight, space between ranks


def draw_epoch(trace: str | Path, picture: str | Path, epoch: int | None = None, title: str = "") -> int:
    """Draw one epoch of all ranks from a --trace file and return its number.

    Args:   epoch  by default the stored epoch of median length, without the first.
    Raises: InputError if the trace has no such epoch; ResourceError without matplotlib.
    """
    events = read_trace(trace)
    epochs = epochs_of(events)
    if not epochs:
        raise InputError(f"{trace} has no epoch; expected a file that `spgnn train --trace` wrote")
    epoch = _median(epochs) if epoch is None else epoch
    if epoch not in epochs:
        raise InputError(f"{trace} has no epoch {epoch}; expected one of: {', '.join(map(str, sorted(epochs)))}")
    start, end = epochs[epoch]
    shown = [event for event in events if event["ts"] < end and event["ts"] + event["dur"] > start]
    ranks = sorted({event["pid"] for event in shown})

    figure = new_figure(11, 1.3 + 0.72 * len(ranks))
    axes = figure.add_subplot()
    pitch = BAR + FLIGHT + GAP
    for row, rank in enumerate(ranks):
        _draw_rank(axes, [event for event in shown if event["pid"] == rank], row * pitch, start, end)
    axes.set_yticks([row * pitch + (BAR + FLIGHT) / 2 for row in range(len(ranks))], [f"rank {rank}" for rank in ranks])
    axes.set_ylim(len(ranks) * pitch - GAP + 0.15, -0.2)
    axes.set_xlim(0, (end - start) / 1e3)
    axes.set_xlabel("milliseconds")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(title or f"epoch {epoch}", loc="left", fontsize=11)
    _add_legend(figure, shown)
    figure.savefig(picture)
    return epoch


def epochs_of(events: list[dict]) -> dict[int, tuple[float, float]]:
    """Return epoch -> (first start, last end) over all ranks, in microseconds."""
    spans: dict[int, tuple[float, float]] = {}
    for event in events:
        word, _, number = event["name"].partition(" ")
        if word == "epoch" and number.isdigit():
            start, end = spans.get(int(number), (event["ts"], 0.0))
            spans[int(number)] = (min(start, event["ts"]), max(end, event["ts"] + event["dur"]))
    return spans


def _median(epochs: dict[int, tuple[float, float]]) -> int:
    later = sorted(epochs)[1:] or sorted(epochs)
    return sorted(later, key=lambda epoch: epochs[epoch][1] - epochs[epoch][0])[len(later) // 2]


def _draw_rank(axes, events: list[dict], top: float, start: float, end: float) -> None:
    width_ms = (end - start) / 1e3
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):  # nested spans come later, on top
        at = max(event["ts"], start)
        left, width = (at - start) / 1e3, (min(event["ts"] + event["dur"], end) - at) / 1e3
        is_flight = event["name"] == "exchange"
        bottom, height = (top + BAR + 0.04, FLIGHT - 0.04) if is_flight else (top, BAR)
        colour = COLOURS.get(event["name"], REST)
        axes.broken_barh(
            [(left, width)], (bottom, height), facecolor=colour, edgecolor="white", linewidth=0.3 if is_flight else 0.2
        )
        text = _text(event, width / width_ms)
        if text:
            dark = colour in ("#0072B2", "#009E73", "#D55E00", "#8C6BB1")
            place = (left + width / 2, bottom + height / 2)
            axes.text(
                *place, text, ha="center", va="center", fontsize=6.5, color="white" if dark else "black", clip_on=True
            )


def _text(event: dict, share: float) -> str:
    """Return the longest text that fits into a bar with this share of the width."""
    name, of, sent = event["name"], event["args"].get("of", ""), event["args"].get("bytes", 0)
    if name not in COLOURS:
        return ""
    texts = (name,)
    if name == "exchange":
        short = of.replace("layer ", "L")
        texts = (f"{of}, {sent / 1e6:.1f} MB", f"{short} {sent / 1e6:.1f} MB", f"{sent / 1e6:.1f} MB")
    return next((text for text in texts if len(text) * 0.0064 < share), "")


def _add_legend(figure, events: list[dict]) -> None:
    from matplotlib.patches import Patch

    seen = {event["name"] for event in events}
    patches = {NAMES.get(name, name): Patch(facecolor=colour) for name, colour in COLOURS.items() if name in seen}
    patches["other"] = Patch(facecolor=REST)
    figure.legend(
        patches.values(),
        patches,
        loc="outside lower center",
        ncols=len(patches),
        frameon=False,
        fontsize=8,
        handlelength=1.2,
    )
