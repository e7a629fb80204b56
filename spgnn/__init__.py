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
from typing import TYPE_CHECKING, Any

# torch asks Linux for huge pages for large tensors: epochs fault in fewer pages. Read at torch's first allocation.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

if TYPE_CHECKING:  # what a type checker finds under these names
    # isort: off
    from . import (
        analysis as analysis, config as config, cost as cost, data as data, dist as dist, distgraph as distgraph,
        doctor as doctor, errors as errors, exactness as exactness, experiment as experiment, graph as graph,
        layers as layers, links as links, partition as partition, report as report, samplers as samplers, spmm as spmm,
        timeline as timeline, training as training,
    )  # fmt: skip
    from .graph import (
        Graph as Graph, graph_from_coo as graph_from_coo, normalise as normalise, random_split as random_split,
        split_links as split_links,
    )  # fmt: skip
    from .data import (
        load_graph as load_graph, save_graph as save_graph, convert as convert, from_scipy as from_scipy,
        from_petsc as from_petsc,
        from_networkx as from_networkx, from_pandas as from_pandas, from_pyg as from_pyg, from_dgl as from_dgl,
        from_anndata as from_anndata,
        from_meshio as from_meshio,
    )  # fmt: skip
    from .partition import (
        Partition as Partition, part_graph as part_graph, load_partition as load_partition,
        save_partition as save_partition, partitioner as partitioner, part_stream as part_stream,
        part_to_folder as part_to_folder, streaming_partitioner as streaming_partitioner,
    )  # fmt: skip
    from .samplers import sampler as sampler, Sampler as Sampler, Subgraph as Subgraph
    from .analysis import measure as measure, VolumeReport as VolumeReport
    from .dist import world as world, Communicator as Communicator, run_threads as run_threads
    from .cost.pairs import ProcessGrid as ProcessGrid
    from .layers import Layer as Layer, Stack as Stack
    from .layers.foreign.wrap import wrap as wrap
    from .layers.foreign.typed_graphs import to_pyg as to_pyg, to_dgl as to_dgl
    from .spmm import SpMM as SpMM, IndexMap as IndexMap, ExchangePlan as ExchangePlan
    from .training import History as History, explain as explain, Trainer as Trainer
    from .distgraph import distribute as distribute, DistGraph as DistGraph, Parts as Parts, Fields as Fields
    from .training.rollouts import rollout as rollout, Rollout as Rollout
    from .experiment.fit import train as train
    from .experiment.estimators import NodeClassifier as NodeClassifier, NodeRegressor as NodeRegressor
    from .exactness.verify import verify as verify
    from .exactness.compared import Verification as Verification
    from .experiment import resume as resume, Checkpoints as Checkpoints, save_run as save_run
    from .experiment.predictions import predict as predict, Predictions as Predictions, load_run as load_run
    from .experiment.link_prediction import load_links as load_links, LinkPredictor as LinkPredictor
    from .errors import SpgnnError as SpgnnError
    # isort: on

__version__ = "1.0.0"

# Where names are: in which part of the package.
_NAMES = {
    "graph": "Graph graph_from_coo normalise random_split split_links",
    "data": "load_graph save_graph convert from_scipy from_networkx from_pandas from_pyg from_dgl from_anndata from_meshio from_petsc",
    "partition": "Partition part_graph load_partition save_partition partitioner part_stream part_to_folder streaming_partitioner",
    "samplers": "sampler Sampler Subgraph",
    "analysis": "measure VolumeReport",
    "dist": "world Communicator run_threads",
    "cost.pairs": "ProcessGrid",
    "layers": "Layer Stack",
    "layers.foreign.wrap": "wrap",
    "layers.foreign.typed_graphs": "to_pyg to_dgl",
    "spmm": "SpMM IndexMap ExchangePlan",
    "training": "History explain Trainer",
    "distgraph": "distribute DistGraph Parts Fields",
    "training.rollouts": "rollout Rollout",
    "experiment.fit": "train",
    "experiment.estimators": "NodeClassifier NodeRegressor",
    "exactness.verify": "verify",
    "exactness.compared": "Verification",
    "experiment": "resume Checkpoints save_run",
    "experiment.predictions": "predict Predictions load_run",
    "experiment.link_prediction": "load_links LinkPredictor",
    "errors": "SpgnnError",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}
_PARTS = (
    "analysis config cost data dist distgraph doctor errors exactness experiment graph layers links partition report samplers spmm timeline training"
).split()
__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    if name in _PARTS:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'spgnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_PARTS})
