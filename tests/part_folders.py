"""The parts of a graph that all ranks hold, by way of a folder that is removed when the tests end."""

import atexit
import shutil
import tempfile

from spgnn.distgraph import Parts
from spgnn.errors import from_root
from spgnn.partition import partition_of, save_partition


def parts_of(graph, owners, comm, hops=1, split="auto", **options):
    """Return Parts of a graph; owners: a Partition, or the owner of each node. Collective."""

    def folder():
        home = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        partition = partition_of(graph.in_use(), getattr(owners, "owner_N", owners), getattr(owners, "k", None))
        save_partition(partition, f"{home}/parts", graph, hops=hops)
        return f"{home}/parts"

    return Parts(from_root(comm, folder), comm, hops, split, **options)
