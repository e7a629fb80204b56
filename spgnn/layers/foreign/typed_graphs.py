"""to_pyg and to_dgl: a typed Graph as the object of another library, which has to be installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from ...data.by_type import pieces_of
from ...graph import Graph

DGL_NAMES = {"x": "feat", "y": "label"}


def to_pyg(graph: Graph) -> Any:
    """Return a typed Graph as HeteroData of PyG: edge_index, x, y and masks of each type, as from_pyg reads them.

    Raises: UsageError for a graph without types of nodes and relations.
    """
    from torch_geometric.data import HeteroData  # pyrefly: ignore[missing-import]

    (nodes, edges), data = pieces_of(graph), HeteroData()
    for name, of in nodes.items():
        for key, values in of.items():
            if key != "num_nodes":
                data[name][key] = torch.tensor(values)
            elif "x" not in of:
                data[name].num_nodes = values
    for triple, ends_2L in edges.items():
        data[triple].edge_index = torch.tensor(ends_2L)
    return data


def to_dgl(graph: Graph) -> Any:
    """Return a typed Graph as a heterograph of DGL: feat, label and masks of each type, as from_dgl reads them.

    Raises: UsageError for a graph without types of nodes and relations.
    """
    nodes, edges = pieces_of(graph)
    ends = {triple: tuple(map(torch.tensor, ends_2L)) for triple, ends_2L in edges.items()}
    g = import_module("dgl").heterograph(ends, num_nodes_dict={name: of.pop("num_nodes") for name, of in nodes.items()})
    for name, of in nodes.items():
        g.nodes[name].data.update({DGL_NAMES.get(key, key): torch.tensor(values) for key, values in of.items()})
    return g
