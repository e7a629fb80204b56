"""Training on a device: checks of options, facts for the summary, and the error when its memory runs out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..analysis.training_memory import RankMemory, device_memory
from ..config import TrainConfig
from ..errors import ResourceError, SpgnnError, UsageError
from ..spmm.dry.dry import dry_run
from ..spmm.dry.dry_operator import setting_of
from ..spmm.operator.dist_spmm import DistSpMM
from ..spmm.operator.features import SparseRows
from ..training.steps.captured import check_ranks
from ..training.trainer import Trainer


def check_device(config: TrainConfig, n_ranks: int = 1) -> None:
    """Raise UsageError for --cuda-graph where a step cannot be captured or is observed."""
    if not config.cuda_graph:
        return
    if config.device == "cpu":
        raise UsageError("--cuda-graph requires --device cuda")
    check_ranks(n_ranks)
    if config.trace:
        raise UsageError("--cuda-graph runs a step as one launch, inside which --trace sees nothing; omit one of them")


def device_facts(device: torch.device) -> dict:
    """Return name, memory and peak memory of a device for the summary of a run; {} for the CPU."""
    if device.type == "cpu":
        return {}
    found = torch.cuda.get_device_properties(device)
    peak = torch.cuda.max_memory_allocated(device)
    return {"device": found.name, "device_memory_mb": found.total_memory / 1e6, "peak_device_mb": peak / 1e6}


@contextmanager
def explaining_memory(trainer: Trainer) -> Iterator[None]:
    """Raise ResourceError with the arithmetic and the number of parts that would fit when the device is out of memory."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        device, rank = trainer.dgraph.A.device, trainer.comm.rank
        free, total = torch.cuda.mem_get_info(device)
        raise ResourceError(refusal(trainer, rank, f"{device}", free, total)) from error


def refusal(trainer: Trainer, rank: int, device: str, free: int, total: int) -> str:
    """Return the message for a rank that does not fit its device: needed, available, and a remedy."""
    text = f"rank {rank}: out of memory on {device}, which has {total / 1e9:.3g} GB, {free / 1e9:.3g} GB of them free"
    need = device_need(trainer)
    if need is None:
        return f"{text}; use more ranks, or --dtype bfloat16"
    parts = trainer.dgraph.comm.size // trainer.dgraph.replication
    enough = need.ranks_that_fit(parts, lambda _, a_part: a_part <= total)
    text += f"; the training takes {need.arithmetic()} by prediction"
    if enough is None:
        return f"{text}; more parts do not help: use a device with more memory, or --dtype bfloat16"
    if enough == parts:
        return f"{text}, which fits a device without other users: are other ranks or programs on it?"
    return f"{text}; {enough} parts, each on its own device, would fit; or --dtype bfloat16"


def device_need(trainer: Trainer) -> RankMemory | None:
    """Return the predicted memory of this rank on its device; None if the model cannot run without data."""
    X, rows = trainer.dgraph.X, trainer.steps.rows
    A = rows.operators[0]  # of the first layer: it has A X
    step = rows.A if rows.is_pruned else None
    try:
        run = dry_run(trainer.model, setting_of(A, X, step), shared=(trainer.dgraph,))
    except SpgnnError:
        return None
    counts = run.setting.counts | _nonzeros(A)
    for number, layer in enumerate(() if step is None else step.layers, start=1):
        counts |= _nonzeros(layer, str(number))
    if isinstance(A.kept, SparseRows):
        counts["kept_nnz"] = A.kept.csr.nnz
    is_symmetric = A.A_oo.transposed() is A.A_oo
    return device_memory(run.on(counts), n_ranks=trainer.comm.size, is_symmetric=is_symmetric)


def _nonzeros(A: DistSpMM, suffix: str = "") -> dict[str, int]:
    """Return the nonzeros of the blocks of an operator, and the rows that its stages read."""
    ghost_nnz, g = sum(stage.A.nnz for stage in A.stages), sum(stage.plan.g for stage in A.stages)
    moved = sum(stage.plan.moved_nnz for stage in A.stages)
    counts = {"own_nnz": A.A_oo.nnz, "ghost_nnz": ghost_nnz, "sender_nnz": moved, "g": g, "edges": A.nnz}
    return {name + suffix: count for name, count in counts.items()}
