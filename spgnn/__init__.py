"""spgnn: exact full-graph training of graph neural networks as SpMM/GEMM chains.

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

_HOME = {
    "Graph": "graph",
    "graph_from_coo": "graph",
    "normalise": "graph",
    "load_graph": "data",
    "save_graph": "data",
    "convert": "data",
    "from_scipy": "data",
    "from_networkx": "data",
    "from_pandas": "data",
    "from_pyg": "data",
    "from_dgl": "data",
    "Partition": "partition",
    "part_graph": "partition",
    "load_partition": "partition",
    "save_partition": "partition",
    "partitioner": "partition",
    "part_stream": "partition",
    "part_to_folder": "partition",
    "streaming_partitioner": "partition",
    "sampler": "samplers",
    "Sampler": "samplers",
    "Subgraph": "samplers",
    "random_split": "graph",
    "measure": "analysis",
    "VolumeReport": "analysis",
    "world": "dist",
    "Communicator": "dist",
    "ProcessGrid": "cost.grid",
    "run_threads": "dist",
    "Layer": "layers",
    "Stack": "layers",
    "wrap": "layers.foreign.wrap",
    "SpMM": "spmm",
    "IndexMap": "spmm",
    "ExchangePlan": "spmm",
    "History": "training",
    "distribute": "distgraph",
    "DistGraph": "distgraph",
    "Parts": "distgraph",
    "Fields": "distgraph",
    "rollout": "training.rollouts",
    "Rollout": "training.rollouts",
    "train": "experiment.fit",
    "explain": "training",
    "Trainer": "training",
    "verify": "exactness.verify",
    "Verification": "exactness.verification",
    "resume": "experiment",
    "Checkpoints": "experiment",
    "predict": "experiment.predictions",
    "Predictions": "experiment.predictions",
    "load_run": "experiment.predictions",
    "save_run": "experiment",
    "SpgnnError": "errors",
}
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
