"""An epoch after the second maps hardly any fresh pages, whatever a training is of."""

import resource
import sys

import pytest
import torch
from pairs import full_beyond

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.experiment import run
from spgnn.machine import keep_memory, rss_bytes

NODES, EPOCHS, MOST = 40_000, 4, 1_000  # a tensor of 64 columns is 10 MB; MOST faults per epoch after the second
FAMILIES = ("gin", "gat", "sage", "ngnn", "mixhop", "gcnii", "mlp", "gcn", "appnp", "sgc")
MODES = {
    "pruned": dict(model="sage", prune="always"),
    "dropout": dict(model="gin", dropout=0.5),
    "numbers": dict(model="gin", loss="mse"),
    "node": dict(model="gin", sampler="node", budget=30_000, subgraphs=2),
    "average": dict(model="gin", mode="average", parts=2),
    "attention, pruned": dict(model="gat", prune="always"),
    **{name: dict(model="gin", sampler=name, budget=30_000, subgraphs=2) for name in ("edge", "walk", "frontier")},
    **{name: dict(model="sage", sampler=name, batch=8192) for name in ("neighbour", "labor")},
    "shadow": dict(model="sage", sampler="shadow", batch=4096),
    "cluster": dict(model="sage", sampler="cluster", batch=50),
}
CASES = [(name, dict(model=name)) for name in FAMILIES[:3]] + list(MODES.items())[:3]
CASES += [case for case in [*((name, dict(model=name)) for name in FAMILIES), *MODES.items()] if case not in CASES]
ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="pages are kept by mremap")


def faults_of(options: dict) -> list[int]:
    """Return the page faults of each epoch but the first, evaluations included."""
    counts = []
    wide = {} if options["model"] == "sgc" else {"hidden": 64}
    config = TrainConfig(epochs=EPOCHS, threads=2, **wide, **options)
    count = lambda record: counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    run(f"sbm:n={NODES},features=64,degree=6,seed=0", config, SelfCommunicator(), count)
    return [after - before for before, after in zip(counts, counts[1:])]


@ONLY_LINUX
@pytest.mark.slow
@pytest.mark.parametrize("name, options", full_beyond(6, CASES))
def test_an_epoch_after_the_second_maps_hardly_any_pages(name, options):
    faults = faults_of(options)[1:]
    assert sum(faults) <= MOST * len(faults), faults


@ONLY_LINUX
def test_tensors_of_any_size_share_the_pages_that_others_freed():
    """Pages are gathered from several blocks, and no more are held than tensors took at once."""
    keep_memory()
    before, size = rss_bytes(), 32 << 20
    for count, pages in ((4, 1), (1, 4), (2, 2), (8, 0.5)):  # 128 MB each time, in other pieces
        tensors = [torch.full((int(size * pages),), number, dtype=torch.uint8) for number in range(count)]
        assert all(tensor.min() == tensor.max() == number for number, tensor in enumerate(tensors))
        assert rss_bytes() - before < 4.5 * size
        del tensors
    assert rss_bytes() - before > 3 * size, "freed memory went back to the system"
    keep_memory()
    assert rss_bytes() - before < size / 2, "free pages did not go back"
