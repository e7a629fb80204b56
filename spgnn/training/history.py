"""History: what a training gives back."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class History:
    """What a training did: one record an epoch, and the best epoch by validation score."""

    records: list[dict] = field(default_factory=list)
    best_epoch: int = 0
    val: float = float("nan")
    test: float = float("nan")
    train: float = float("nan")
    metric: str = "accuracy"
    scores: dict = field(default_factory=dict)  # split -> accuracy, micro_f1, macro_f1 at the best epoch
    per_class: list = field(default_factory=list)  # of the test split, at the best epoch
    epoch_s: float = 0.0  # median seconds of a training epoch, evaluation aside
    bytes_sent: int = 0  # counted, one training epoch, all ranks
    bytes_predicted: int | None = None  # the same from the plan; None for layers it does not know
    setup_bytes: int = 0

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.4f}" for name in ("train", "val", "test") if (value := getattr(self, name)) == value)
        best = f", best {self.best_epoch}: {self.metric} {scores}" if scores else ""
        return f"History({len(self.records)} epochs{best}; {self.epoch_s:.3g} s and {self.bytes_sent:,} bytes an epoch)"
