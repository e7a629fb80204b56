"""Parts of a generated graph are trained under the spec that generated it."""

import pytest

from spgnn import load_graph, part_graph
from spgnn.config import TrainConfig
from spgnn.dist import SelfCommunicator
from spgnn.errors import PartitionError
from spgnn.experiment import run
from spgnn.partition import save_partition

SPEC = "sbm:n=60,classes=3,features=4"


@pytest.fixture
def config(tmp_path):
    graph = load_graph(SPEC)
    save_partition(part_graph(graph, 1, "block"), tmp_path / "parts", graph)
    return TrainConfig(partition=str(tmp_path / "parts"), epochs=1, hidden=2)


def test_they_are_found_by_its_kind(config):
    assert run(SPEC, config, SelfCommunicator())["n"] == 60


@pytest.mark.parametrize("source", ["rmat:scale=6", "wordnet"])
def test_another_kind_is_refused(config, source):
    with pytest.raises(PartitionError, match="was made for 'sbm-60-3', not '"):
        run(source, config, SelfCommunicator())
