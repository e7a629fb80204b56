"""Predictions on the parts of a graph that no rank holds, layer by layer."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import torch

from ..config import Distribution
from ..config.names import Evaluation, Task
from ..distgraph import Parts
from ..errors import UsageError
from ..partition import PartitionFolder
from ..training.metrics import RANKED, SCORES, main_scores
from ..training.parts.evaluation import choose_evaluation
from ..training.parts.inference import LayerwiseScorer
from ..training.steps.step import sum_ranks
from .opening import Source


def parts_of(
    source: Source, how: Distribution, model: torch.nn.Module, evaluation: Evaluation, memory: str, needs_rows: str
) -> Parts | None:
    """Return the parts of a partition folder where a model is to be evaluated layer by layer, None where it is not.

    Args:   needs_rows  an option that needs the rows of all nodes, or "".
    Raises: UsageError where that is requested and is not possible. Collective.
    """
    folder = source.folder
    _check(folder, evaluation, needs_rows)
    if evaluation == "together" or folder is None or needs_rows:
        return None
    if evaluation == "auto" and folder.manifest["hops"] == 0:
        return None
    parts = Parts(folder, source.comm, hops=1, split=source.config.split, **asdict(how))
    return parts if choose_evaluation(model, parts, evaluation, memory) == "layerwise" else None


def _check(folder: PartitionFolder | None, evaluation: Evaluation, needs_rows: str) -> None:
    """Raise UsageError where a graph cannot be evaluated layer by layer and that is requested; the same on all ranks."""
    if evaluation != "layerwise":
        return
    if needs_rows:
        raise UsageError(f"{needs_rows} requires --evaluation together, which has the rows of all nodes")
    if folder is None:
        raise UsageError(
            "--evaluation layerwise reads parts, and GRAPH is no partition folder; "
            "give the folder of `spgnn partition GRAPH -k K --hops 1 --out DIR` by --graph"
        )


def predict_parts(
    model: torch.nn.Module, parts: Parts, scratch: str, task: Task, metric: str, is_own: bool
) -> tuple[np.ndarray | None, dict]:
    """Return predictions in original order on rank 0, None elsewhere, and what a report says of them. Collective.

    Scores need labels of the model's kind, in a split that was not made up for another graph.
    Args: is_own  the graph is the run's, whose split it has.
    """
    scorer = LayerwiseScorer(model, parts, scratch, task)
    fits = parts.n_classes == scorer.C if task == "labels" else 0 < parts.n_classes <= scorer.C
    has_labels = fits and scorer.layerwise.reader.task == task
    is_counted = has_labels and (is_own or parts.source.facts.has_split)
    counts, predictions_N = scorer.evaluate(is_counted, is_predicted=True)
    read = sum_ranks(scorer.layerwise.bytes_read, parts.comm)
    found = {"n": parts.n_nodes, "evaluation": "layerwise", "parts": parts.k, "bytes_read": read}
    if is_counted:
        found |= main_scores(counts, task, SCORES[task][0] if metric in RANKED else metric)
    return predictions_N, found
