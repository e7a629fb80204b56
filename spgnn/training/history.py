"""History: what a training gives back."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class History:
    """What a training did: one record an epoch, and the best epoch by validation score.

    records         {epoch, loss, train, val, test, epoch_s, bytes_sent} of each epoch; scores are None where it was not scored.
    best_epoch      the first with the best validation score; train, val and test are its scores of `metric`.
    metric          accuracy, or micro_f1 of multi-label graphs.
    scores          split -> {accuracy, micro_f1, macro_f1} at the best epoch.
    per_class       {class, precision, recall, f1, support} of the test split at the best epoch.
    epoch_s         median seconds of a training epoch, evaluation aside.
    bytes_sent      counted, one training epoch, all ranks; bytes_predicted: the same from the plan, None where a layer
                    is no chain A H W; setup_bytes: sent once to make the kept A X.
    """

    records: list[dict] = field(default_factory=list)
    best_epoch: int = 0
    val: float = float("nan")
    test: float = float("nan")
    train: float = float("nan")
    metric: str = "accuracy"
    scores: dict = field(default_factory=dict)
    per_class: list = field(default_factory=list)
    epoch_s: float = 0.0
    bytes_sent: int = 0
    bytes_predicted: int | None = None
    setup_bytes: int = 0

    def __repr__(self) -> str:
        scores = ", ".join(
            f"{name} {value:.4f}" for name in ("train", "val", "test") if (value := getattr(self, name)) == value
        )
        best = f", best {self.best_epoch}: {self.metric} {scores}" if scores else ""
        return f"History({len(self.records)} epochs{best}; {self.epoch_s:.3g} s and {self.bytes_sent:,} bytes an epoch)"
