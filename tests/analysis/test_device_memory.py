"""The memory of a device: parts that add up, fewer rows need less, and what would fit does."""

import json

import pytest
import torch

from spgnn import cli
from spgnn.analysis.epoch import gcn_of
from spgnn.analysis.training_memory import device_memory, rank_memory
from spgnn.spmm.dry.dry_operator import Setting

SIZES = dict(n=100_000, own_nnz=2_000_000, ghost_nnz=300_000, g=20_000, s=15_000, f=20_000, sender_nnz=0)
ALONE = dict.fromkeys(("ghost_nnz", "g", "s", "f", "sender_nnz"), 0)


def run(counts, itemsize=4, classes=40):
    """The dry run of two layers 128 -> 256 -> classes on a rank with these counts."""
    setting = Setting(features=128, dtype=DTYPES[itemsize], is_exchanged=counts["g"] > 0)
    return gcn_of((128, 256, classes)).run(setting, is_pruned=False).on(counts)


DTYPES = {2: torch.bfloat16, 4: torch.float32}
PLAN = [
    "plan", "sbm:n=400,seed=1", "--widths", "16,8,4", "--method", "block", "--machine", "ethernet-1g", "--ranks", "2",
]  # fmt: skip


def test_the_operator_is_counted_by_items_indices_and_weights():
    sizes = ALONE | dict(n=1000, own_nnz=5000)
    one = device_memory(run(sizes), n_ranks=1).parts["operator"]
    assert one == 5000 * 8 + 16 * 1000 + 16 * 2 * 1000 + 5000 // 256 * 128 * 4  # the widest product is A X
    directed = device_memory(run(sizes), n_ranks=1, is_symmetric=False).parts["operator"]
    assert directed - one == 5000 * 8 + 16 * 1000


def test_bfloat16_halves_features_and_activations_but_for_sums():
    sizes = ALONE | dict(n=100_000, own_nnz=2_000_000)
    wide, narrow = (device_memory(run(sizes, itemsize), n_ranks=1).parts for itemsize in (4, 2))
    assert narrow["features"] * 2 == wide["features"]
    name = "activations and exchange buffers"
    assert narrow[name] == pytest.approx(wide[name] / 2, rel=0.15)  # the logits stay float32
    assert narrow["operator"] == wide["operator"]


def test_parts_that_fit_do_and_half_as_many_do_not():
    memory = device_memory(run(SIZES), n_ranks=2)
    of = lambda size: memory.ranks_that_fit(2, lambda _, a_part: a_part <= size)
    enough = of(1.3e9)
    whole = memory.parts["CUDA itself"] + memory.parts["weights and optimiser"]
    rows = memory.training - whole
    assert enough > 2 and whole + rows * 2 / enough <= 1.3e9 < whole + rows * 4 / enough
    assert of(1e8) is None
    assert f"= {memory.training / 1e9:.3g} GB" in memory.arithmetic()


def test_a_host_beside_a_device_holds_neither_activations_nor_tiles():
    sizes = ALONE | dict(n=100_000, own_nnz=4_000_000)
    host = rank_memory(run(sizes, classes=128), n_ranks=1, n_nodes=100_000, process_bytes=2e8)
    assert host.parts["tiles"] == 4_000_000 * 8 + 5 * 8 * 100_001
    gone = {"activations and exchange buffers": 0, "tiles": 0}
    assert host.beside_device().parts == host.parts | gone and host.training > host.beside_device().training


def test_plan_says_what_a_device_needs(capsys):
    assert cli.main([*PLAN, "--device", "cuda", "--device-memory", "80", "--json"]) == 0
    for line in map(json.loads, capsys.readouterr().out.splitlines()):
        assert line["device_available_mb"] == 80_000 and line["device_mb"] == pytest.approx(
            sum(line["device_parts_mb"].values())
        )
        assert line["memory_parts_mb"]["activations and exchange buffers"] == 0


def test_plan_refuses_a_device_that_is_too_small_with_the_arithmetic(capsys):
    assert cli.main([*PLAN, "--device", "cuda", "--device-memory", "0.5"]) == 4
    out, err = capsys.readouterr()
    assert "GB/device" in out and "does not fit" in out
    assert "needs 1.1 GB CUDA itself" in err and "of a device with 500 MB" in err and "more parts do not help" in err
