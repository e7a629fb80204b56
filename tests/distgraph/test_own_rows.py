"""Each rank gets the rows that the partitioner, asked for the scheme of the training, gives it."""

import pytest

from spgnn import distribute, load_graph, part_graph
from spgnn.dist import run_threads
from spgnn.partition import PartitionFolder, save_partition

SPEC = "rmat:scale=8,degree=8"


def parts_of(graph, **options) -> list[list[int]]:
    """Return the nodes of each of three ranks."""
    body = lambda comm: distribute(graph if comm.rank == 0 else None, comm, **options).node_n
    return [sorted(node_n.tolist()) for node_n in run_threads(3, body)]


@pytest.mark.parametrize("scheme", ["columns", "cover", "auto"])
def test_volume_minimises_what_the_scheme_sends(scheme):
    graph = load_graph(SPEC).with_edges("directed")
    part = part_graph(graph, 3, "volume", scheme=scheme)
    assert parts_of(graph, method="volume", scheme=scheme) == [part.own(rank).tolist() for rank in range(3)]


def test_a_partition_folder_that_is_open_is_taken_as_it_is(tmp_path, monkeypatch):
    graph = load_graph(SPEC)
    part = part_graph(graph, 3, "random", seed=3)
    save_partition(part, tmp_path / "parts", graph)
    reads = []
    hashed = PartitionFolder._partition.func
    monkeypatch.setattr(PartitionFolder, "_partition", property(lambda self: reads.append(self) or hashed(self)))
    folder = PartitionFolder(tmp_path / "parts")
    for source, partition in ((folder, None), (None, folder)):
        found = run_threads(3, lambda comm: sorted(distribute(source, comm, partition).node_n.tolist()))
        assert found == [part.own(rank).tolist() for rank in range(3)]
    assert len(reads) == 6  # once by each rank of two runs
