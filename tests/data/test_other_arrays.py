"""Arrays of DLPack where arrays are taken, and matrices of petsc4py."""

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_files as tiny
import torch

import spgnn
from spgnn.errors import GraphError


class Capsule:
    """An array of another library, of which NumPy knows DLPack alone."""

    def __init__(self, array, device=1):
        self.array, self.device = np.asarray(array), device

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.device, 0

    def __array__(self, *_, **__):  # as CuPy's
        raise TypeError("implicit conversion to a NumPy array is not allowed")


@pytest.mark.parametrize("of", [Capsule, torch.from_numpy], ids=["DLPack", "torch"])
def test_arrays_of_other_libraries_make_the_same_graph(of):
    numbers = (tiny.SRC, tiny.DST, tiny.WEIGHTS, tiny.X, tiny.Y, tiny.SPLIT)
    src, dst, weights, X, y, split = map(of, numbers)
    edge_attr = np.ones((len(tiny.SRC), 2), np.float32)
    for more, ours in (({}, {}), ({"edge_attr": of(edge_attr)}, {"edge_attr": edge_attr})):
        found = spgnn.graph_from_coo(src, dst, tiny.N, weights, X=X, y=y, split=split, **more)
        made = spgnn.graph_from_coo(*numbers[:2], tiny.N, tiny.WEIGHTS, X=tiny.X, y=tiny.Y, split=tiny.SPLIT, **ours)
        assert found.digest() == made.digest()
    dense = tiny.adjacency(tiny.WEIGHTS).toarray()
    pair = of(np.stack([tiny.SRC, tiny.DST]))
    for edges, n in (((src, dst), 5), (pair, 5), (of((dense > 0).astype(np.float32)), 6)):
        graph = spgnn.load_graph(edges, features=of(tiny.X[:n]), labels=of(tiny.Y[:n]), split=of(tiny.SPLIT[:n]))
        assert ((graph.A.toarray() > 0) == (dense > 0)[:n, :n]).all() and np.array_equal(graph.X, tiny.X[:n])
        assert graph.y.tolist() == tiny.Y[:n].tolist() and graph.split.tolist() == tiny.SPLIT[:n].tolist()


@pytest.mark.parametrize("values, fault", [
    (Capsule(tiny.SRC, device=2), "a Capsule is on a device; copy it to the CPU"),
    (Capsule(np.array(["a"])), "a Capsule cannot be made a NumPy array"),
])  # fmt: skip
def test_an_array_that_numpy_cannot_take_is_refused(values, fault):
    with pytest.raises(GraphError, match=fault):
        spgnn.graph_from_coo(values, tiny.DST)


def test_a_matrix_of_petsc4py_is_an_adjacency():
    A = tiny.adjacency(tiny.WEIGHTS)
    if importlib.util.find_spec("petsc4py"):
        from petsc4py import PETSc

        csr = (A.indptr.astype(PETSc.IntType), A.indices.astype(PETSc.IntType), A.data)
        mat = PETSc.Mat().createAIJ(A.shape, csr=csr, comm=PETSc.COMM_SELF)
        assert spgnn.load_graph(mat).digest() == spgnn.load_graph(A).digest()
    rows = lambda: (A.indptr, A.indices, A.data.astype(np.float64))
    Mat = type("Mat", (SimpleNamespace,), {"__module__": "petsc4py.PETSc"})
    mat = Mat(comm=SimpleNamespace(size=1), getValuesCSR=rows, getSize=lambda: A.shape)
    assert (spgnn.load_graph(mat).A != A).nnz == 0
    freed = []
    whole = Mat(comm=mat.comm, getValuesCSR=rows, destroy=lambda: freed.append(True))
    of_three = Mat(comm=SimpleNamespace(size=3), getRedundantMatrix=lambda n: whole, getSize=lambda: A.shape)
    assert (spgnn.load_graph(of_three).A != A).nnz == 0 and freed
    of_three.getSize = lambda: (A.shape[0], 9)
    with pytest.raises(GraphError, match="expected as many rows as columns"):
        spgnn.load_graph(of_three)
