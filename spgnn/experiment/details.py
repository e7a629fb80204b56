"""details.json: what the page of a run shows besides its summary.

Shapes: N nodes, n own rows, C classes, P ranks.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from ..training.explanation import explanation_of
from ..training.metrics import confusion
from ..training.trainer import Trainer

MOST_RANKS = 128  # and classes of a table


def run_details(trainer: Trainer, predictions_N: np.ndarray | None) -> dict[str, Any]:
    """Return the tables of a training that has ended. Collective.

    explanation   what each layer computes and sends, and why, see training.explain; not in mode average.
    sent_PP       bytes that rank q sends rank p in the last epoch.
    confusion_CC  test nodes of class c that were predicted as class d; not of several labels, nor of models that were
                  scored part by part, or trained further.
    """
    config, dgraph, comm = trainer.config, trainer.dgraph, trainer.comm
    details: dict[str, Any] = {}
    is_whole = config.mode == "full"
    if is_whole:
        details["explanation"] = asdict(explanation_of(trainer))
    if comm.size <= MOST_RANKS:
        details["sent_PP"] = comm.all_gather(trainer.sent_P).reshape(comm.size, comm.size).tolist()
    is_scored = is_whole or (config.evaluation == "together" and not config.personal)
    if is_scored and dgraph.task == "classes" and dgraph.n_classes <= MOST_RANKS:
        ((y_n, split_n),) = trainer.steps.scorer.labels() if dgraph.is_counted else ((np.zeros(0, int),) * 2,)
        predicted_n = predictions_N[dgraph.node_n] if dgraph.is_counted else y_n
        details["confusion_CC"] = confusion(
            predicted_n[split_n == 2], y_n[split_n == 2], dgraph.n_classes, comm
        ).tolist()
    return details
