"""Whether a model trains out of core, part by part from disk, as it does in memory: outputs, loss, gradients, buffers.

Shapes: N nodes, n own nodes of a part, C columns.
"""

from __future__ import annotations

from dataclasses import replace
from tempfile import TemporaryDirectory

import numpy as np
import torch

from ..dist import SelfCommunicator
from ..distgraph import Parts
from ..distgraph.own_rows import OwnRows
from ..errors import UsageError
from ..partition import partition_of, save_partition
from ..training.parts.out_of_core import OutOfCore
from .compared import Checked, Finding, compare
from .watched import EPOCH, Call, RankPass, Rows, Task, loss_of_rows, random_world

PARTS = 4
ON_DISK = "a layer reads rows that its `hops` does not say; else it is a defect of spgnn"


def on_disk(task: Task, passes: dict[str, RankPass], tolerance: float) -> Checked | None:
    """Return how far random parts that one rank trains from disk are from its passes in memory; None of other models.

    Args: passes  the evaluation and the training pass of one rank.
    """
    if task.graph.links is not None or task.graph.X is None:
        return None
    threads = torch.get_num_threads()
    try:
        with TemporaryDirectory(prefix="spgnn-verify-") as folder:
            evaluation, training = _passes(task, folder, passes["evaluation"])
    except UsageError:  # of models that are not computed layer by layer
        return None
    except Exception as error:  # of a layer that is made for ranks alone: it is what is reported
        return Checked(1, 1, "on disk", note=f"{type(error).__name__}: {error}")
    finally:
        torch.set_num_threads(threads)
    trained = compare(passes["training"], [training], tolerance)
    return Checked(
        1, 1, "on disk", compare(passes["evaluation"], [evaluation], tolerance).outputs, None, trained.loss.size,
        max((of.size for of in trained.gradients.values()), default=0.0),
        max((of.size for of in trained.buffers.values()), default=0.0),
    )  # fmt: skip


def finding_on_disk(row: Checked | None, tolerance: float) -> Finding | None:
    """Return what differs in the row of on_disk, if anything does."""
    checks = ("evaluation", "loss", "gradient", "buffers")
    check = next((name for name in checks if row is not None and (getattr(row, name) or 0.0) > tolerance), None)
    if row is None or check is None:
        return None
    return Finding("", check, getattr(row, check), (1,), None, None, f"of the training out of core: {ON_DISK}")


def _passes(task: Task, folder: str, one: RankPass) -> tuple[RankPass, RankPass]:
    """Return an evaluation, of whose calls it has the model's, and a training pass, without calls."""
    graph, model = task.graph, task.make().double()
    model.load_state_dict(task.state)
    owner_N = random_world(graph.n_nodes, min(PARTS, graph.n_nodes), 1, task.seed).owner_N
    save_partition(partition_of(graph, owner_N), f"{folder}/parts", graph, hops=1)
    parts = Parts(f"{folder}/parts", SelfCommunicator(), **task.options | {"dtype": "float64", "threads": 1})
    engine, losses = OutOfCore(model, parts, folder), []
    Z_NC = np.zeros_like(one.calls[0].outputs[0].value)

    def keep(rows: OwnRows, Z_nC: torch.Tensor, _) -> None:
        Z_NC[rows.node_m[: rows.n]] = Z_nC.numpy()

    def loss_of(rows: OwnRows, Z_nC: torch.Tensor) -> torch.Tensor:
        loss, _ = loss_of_rows(Z_nC, rows.node_m[: rows.n], rows.y_n, task)
        losses.append(float(loss.detach()))
        return loss

    engine.run(keep)
    try:
        engine.gradient(task.seed, EPOCH, loss_of)
    finally:
        engine.close()
    first = one.calls[0]
    call = Call(first.key, 0, None, first.inputs, [Rows(Z_NC), *first.outputs[1:]])
    own = lambda tensors: {name: T.detach().double().numpy() for name, T in tensors if T is not None}
    gradients = own((name, p.grad) for name, p in model.named_parameters())
    trained = replace(one, calls=[], loss=sum(losses), gradients=gradients, buffers=own(model.named_buffers()))
    return replace(one, calls=[call]), trained
