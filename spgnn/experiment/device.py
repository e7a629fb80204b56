"""Training on a device: checks of options, facts for the summary, and the error when its memory runs out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..analysis.training_memory import RankMemory, device_memory
from ..config import TrainConfig
from ..errors import ResourceError, SpgnnError, UsageError
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
    rows = getattr(trainer.steps, "rows", None)
    if rows is None:  # of parts
        return None
    own = rows.operators[0].A_oo
    try:
        return device_memory(rows.own_run(), n_ranks=trainer.comm.size, is_symmetric=own.transposed() is own)
    except SpgnnError:
        return None
