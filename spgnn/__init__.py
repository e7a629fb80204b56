"""spgnn: training of graph neural networks as SpMM/GEMM chains, on all nodes of a graph, on subgraphs or on parts.

    graph = spgnn.load_graph("wordnet")
    part = spgnn.part_graph(graph, k=4)
    with spgnn.world() as comm:
        dgraph = spgnn.distribute(graph, comm, partition=part)
        history = spgnn.train(Stack(GCN(1024, 128, act="relu"), GCN(128, 45)), dgraph, epochs=100)

Names are imported when first used, so that `import spgnn` starts neither torch nor MPI.
"""

import os
from importlib import import_module

# torch asks Linux for huge pages for large tensors: epochs fault in fewer pages. Read at torch's first allocation.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__version__ = "0.2.0"

# Where names are: in which part of the package.
_NAMES = {
    "graph": "Graph graph_from_coo normalise random_split",
    "data": "load_graph save_graph convert from_scipy from_networkx from_pandas from_pyg from_dgl",
    "partition": "Partition part_graph load_partition save_partition partitioner part_stream part_to_folder streaming_partitioner",
    "samplers": "sampler Sampler Subgraph",
    "analysis": "measure VolumeReport",
    "dist": "world Communicator run_threads",
    "cost.grid": "ProcessGrid",
    "layers": "Layer Stack",
    "layers.foreign.wrap": "wrap",
    "spmm": "SpMM IndexMap ExchangePlan",
    "training": "History explain Trainer",
    "distgraph": "distribute DistGraph Parts Fields",
    "training.rollouts": "rollout Rollout",
    "experiment.fit": "train",
    "exactness.verify": "verify",
    "exactness.verification": "Verification",
    "experiment": "resume Checkpoints save_run",
    "experiment.predictions": "predict Predictions load_run",
    "errors": "SpgnnError",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}
_PARTS = (
    "analysis config cost data dist distgraph doctor errors exactness experiment graph layers partition report samplers spmm timeline training"
).split()
__all__ = [*_HOME, "__version__"]


def __getattr__(name):
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if name in _PARTS:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'spgnn' has no attribute {name!r}")


def __dir__():
    return sorted({*__all__, *_PARTS})
