"""History: the records of a training, and the epoch with the best validation score."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..atomic import finite, new_file, write_text
from ..config.names import LOWER
from ..data.save import write_npy
from .metrics import SPLITS, per_class

if TYPE_CHECKING:
    import pandas


@dataclass(slots=True)
class History:
    """What a training did: one record per epoch, and the best epoch by validation score.

    records         {epoch, loss, train, val, test, epoch_s, bytes_sent} of each epoch; scores are None where it was not scored.
    best_epoch      the first with the best validation score, or other monitored value; train, val and test are its
                    scores of `metric`.
    best            its monitored value, times -1 where lower is better.
    metric          that train, val and test are: accuracy, or micro_f1 of multi-label graphs, r2 of numbers, or as chosen.
    scores          split -> {accuracy, micro_f1, macro_f1, weighted_f1} at the best epoch; of numbers
                    {r2, mae, rmse, relative_l2}.
    per_class       {class, precision, recall, f1, support} of the test split at the best epoch; of numbers the scores of
                    each column.
    epoch_s         median seconds of a training epoch without evaluation.
    split_N         (N,) int8 of all nodes in original order: 0 train, 1 val, 2 test, -1 none; None until a training ends.
    bytes_sent      counted, one record, all ranks; bytes_predicted: the same by prediction, None where the
                    model cannot run without data; setup_bytes: sent once to compute the cached A X.
    """

    records: list[dict] = field(default_factory=list)
    best_epoch: int = 0
    best: float = float("nan")
    metric: str = "accuracy"
    scores: dict = field(default_factory=dict)
    per_class: list = field(default_factory=list)
    epoch_s: float = 0.0
    bytes_sent: int = 0
    bytes_predicted: int | None = None
    setup_bytes: int = 0
    split_N: np.ndarray | None = None

    def __repr__(self) -> str:
        scores = ", ".join(
            f"{name} {value:.4f}" for name in ("train", "val", "test") if (value := getattr(self, name)) == value
        )
        best = f", best {self.best_epoch}: {self.metric} {scores}" if scores else ""
        return (
            f"History({len(self.records)} epochs{best}; {self.epoch_s:.3g} s and {self.bytes_sent:,} bytes per epoch)"
        )

    @property
    def train(self) -> float:
        """Score of the training nodes at the best epoch; nan without any."""
        return self._score("train")

    @property
    def val(self) -> float:
        """Score of the validation nodes at the best epoch; nan without any."""
        return self._score("val")

    @property
    def test(self) -> float:
        """Score of the test nodes at the best epoch; nan without any."""
        return self._score("test")

    def keep_if_best(self, record: dict, scores: dict, counts: np.ndarray | None) -> bool:
        """Keep the scores of a record that was scored if it is the best so far, and return whether.

        Args: scores  split -> {accuracy, ...}; counts: of each split and class, see metrics.count; None of links.
        """
        value = self.compared(record)
        assert value is not None  # it was scored
        if value <= self.best or np.isnan(value) > np.isnan(self.best):
            return False
        # Without validation nodes (NaN) the newest weights count as the best.
        self.best_epoch, self.best = record["epoch"], value
        self.scores, self.per_class = scores, [] if counts is None else per_class(counts[2])
        return True

    def compared(self, record: dict) -> float | None:
        """Return what decides which record is the best, the higher the better; None of one that was not scored."""
        value, is_score = monitored(record), not {"val_loss", "monitor"} & set(record)
        return -value if "val_loss" in record or (is_score and value is not None and self.metric in LOWER) else value

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of all fields and scores as JSON values, NaN among them."""
        fields = asdict(replace(self, records=[], split_N=None))
        fields.pop("split_N")
        return fields | {name: getattr(self, name) for name in SPLITS} | {"records": [dict(r) for r in self.records]}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> History:
        """Return the History of a state_dict."""
        best = state["best"]
        fields = deepcopy({name: value for name, value in state.items() if name not in SPLITS})
        return cls(**fields | {"best": float("nan") if best is None else best})

    def to_frame(self) -> pandas.DataFrame:
        """Return the records as a pandas DataFrame, a row per epoch."""
        import pandas

        return pandas.DataFrame(self.records)

    def save(self, folder: str | Path) -> None:
        """Write metrics.jsonl (the records), summary.json (the rest) and split.npy into a folder, on the rank that calls it."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        summary = finite(self.state_dict())
        write_text(folder / "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in summary.pop("records")))
        write_text(folder / "summary.json", json.dumps(summary, indent=1) + "\n")
        if self.split_N is not None:
            with new_file(folder / "split.npy") as file:
                write_npy(file, self.split_N)

    def epochs_since_best(self) -> int:
        """Return the epochs from the best one to the last that was scored."""
        scored = (record["epoch"] for record in reversed(self.records) if is_scored(record))
        return next(scored, self.best_epoch) - self.best_epoch

    def is_flat(self, window: int, share: float) -> bool:
        """Return whether the mean loss of the last records is more than 1 - share of that of as many before.

        Args: window  records of each mean.
        """
        losses = [record["loss"] for record in self.records[-2 * window :]]
        return len(losses) == 2 * window and float(np.mean(losses[window:])) > (1 - share) * float(
            np.mean(losses[:window])
        )

    def _score(self, split: str) -> float:
        return self.scores[split][self.metric] if self.scores else float("nan")


def is_scored(record: dict) -> bool:
    """Whether a record has scores."""
    return any(record[name] is not None for name in SPLITS)


def monitored(record: dict) -> float:
    """Return what is monitored of a record that was scored: its val_loss, what a function returned, or its val."""
    return record.get("val_loss", record.get("monitor", record["val"]))
