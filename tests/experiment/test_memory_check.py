"""A training that memory cannot hold is refused when its graph is read, with the largest width that fits."""

import re

import pytest

from spgnn.config import TrainConfig
from spgnn.data import load_graph
from spgnn.dist import SelfCommunicator
from spgnn.errors import ResourceError
from spgnn.experiment import run
from spgnn.experiment.memory_check import PredictedTraining, check_fits
from spgnn.layers.registry import operator_of

GRAPH = "sbm:n=3000,seed=1"
M = 600_000_000


@pytest.mark.parametrize("options, parts", [
    ({}, 1), ({"layers": 3, "dtype": "float64"}, 1), ({"model": "gat", "heads": 8}, 1),
    ({"model": "sage", "prune": "never"}, 4), ({"prune": "always"}, 2),
])  # fmt: skip
def test_the_width_that_is_named_fits_and_the_next_does_not(options, parts):
    config = TrainConfig(threads=1, hidden=400_000, **options)
    given = load_graph(GRAPH).with_edges(config.edges), config, operator_of(config)
    with pytest.raises(ResourceError, match="--hidden 400000 does not fit: a rank needs") as error:
        check_fits(*given, parts, M)
    text = str(error.value)
    first, second = text.split("\n")
    assert "has 0.6 GB by its share of this host" in first and re.search(r"^  per rank: [\d,.]+ GB \w.* = ", second)
    hidden, step = int(re.search(r"--hidden (\d+) is the largest that fits", text)[1]), config.heads
    step = step if config.model == "gat" else 1
    predicted = PredictedTraining(*given)
    assert hidden % step == 0 and predicted.memory(hidden, parts).training <= M
    assert predicted.memory(hidden + step, parts).training > M


def test_what_fits_is_trained_and_memory_is_a_limit_below_that_of_the_host():
    comm = SelfCommunicator()
    assert run(GRAPH, TrainConfig(hidden=8, epochs=1, memory="600MB"), comm)["epochs"] == 1
    with pytest.raises(ResourceError, match=r"--memory 600MB; --hidden \d+ is the largest") as error:
        run(GRAPH, TrainConfig(hidden=999_999, epochs=1, memory="600MB"), comm)
    assert error.value.exit_code == 4
    with pytest.raises(ResourceError, match="no --hidden fits"):
        run(GRAPH, TrainConfig(layers=1, epochs=1, memory="9MB"), comm)
