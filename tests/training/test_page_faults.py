"""An epoch after the second maps hardly any fresh pages, whatever a training is of."""

import resource
import sys

import pytest
from pairs import full_beyond

from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.experiment import run

NODES, EPOCHS, MOST = 140_000, 4, 1_000  # a tensor of 64 columns is 36 MB, which glibc maps; MOST faults per epoch
MORE = {"pruned": 4_000, "mixhop": 2_000, "gcnii": 6_000}  # where sums and slices are still torch's
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
    "cluster": dict(model="sage", sampler="cluster", batch=50),
}
CASES = [(name, dict(model=name)) for name in FAMILIES[:3]] + list(MODES.items())[:3]
CASES += [case for case in [*((name, dict(model=name)) for name in FAMILIES), *MODES.items()] if case not in CASES]
ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="glibc maps what is large")


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
@pytest.mark.parametrize("name, options", full_beyond(4, CASES))
def test_an_epoch_after_the_second_maps_hardly_any_pages(name, options):
    faults = faults_of(options)[1:]
    assert sum(faults) <= MORE.get(name, MOST) * len(faults), faults
