"""Every public layer and sampler has an example in its docstring, which prints what it shows."""

import doctest
import inspect
from functools import cache

import numpy as np
import pytest

import spgnn
from spgnn import layers, samplers

LAYERS = [cls for name in layers.__all__ if inspect.isclass(cls := getattr(layers, name)) and name != "Layer"]
SAMPLERS = [samplers.Node, samplers.Edge, samplers.Walk, samplers.Frontier, samplers.Cluster]
SAMPLERS += [samplers.Neighbour, samplers.Labor]


@cache
def names():
    """The layers and samplers, and a graph of 60 nodes and 240 edges for them."""
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 60, (2, 240))
    graph = spgnn.graph_from_coo(
        source, target, 60, edge_attr=rng.normal(size=(240, 3)), X=rng.normal(size=(60, 16)), edge_y=np.arange(240) % 4
    ).with_edges("directed")
    dgraph = spgnn.distribute(graph, operator="none")
    found = {cls.__name__: cls for cls in (*LAYERS, *SAMPLERS)}
    return found | {"A": dgraph.A, "H": dgraph.X, "graph": graph, "train_N": np.ones(60, bool)}


@pytest.mark.parametrize("cls", [*LAYERS, *SAMPLERS], ids=lambda cls: cls.__name__)
def test_the_example_of_a_class_prints_what_it_shows(cls):
    (test,) = doctest.DocTestFinder(recurse=False).find(cls, cls.__name__, globs=names())
    assert test.examples, f"{cls.__name__} has no example in its docstring"
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0
