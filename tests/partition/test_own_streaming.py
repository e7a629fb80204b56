"""Streaming partitioners of users: where they are known, and which of their results are refused."""

import numpy as np
import pytest

from spgnn.errors import PartitionError, UsageError
from spgnn.graph import graph_from_coo
from spgnn.partition import PARTITIONERS, part_graph, part_stream, partitioner
from spgnn.partition.stream import STREAMING, streaming_partitioner

EDGES = np.random.default_rng(0).integers(0, 50, (300, 2))


@pytest.fixture
def register():
    """Register a streaming partitioner for one test only."""
    before = dict(PARTITIONERS), dict(STREAMING)
    yield streaming_partitioner
    for registry, known in zip((PARTITIONERS, STREAMING), before):
        registry.clear()
        registry.update(known)


def modulo(answer=None, passes=1):
    class Modulo:
        def start(self, n_nodes, k, *, seed, balance, shift=0):
            self.n_nodes, self.k, self.shift, self.edges, self.numbers = n_nodes, k, shift, 0, set()

        def add(self, edges, number):
            self.edges += len(edges)
            self.numbers.add(number)

        def finish(self):
            assert self.edges == 300 * passes and self.numbers == set(range(passes))
            return (np.arange(self.n_nodes) + self.shift) % self.k if answer is None else answer

    Modulo.passes = passes
    return Modulo


def test_the_name_of_a_streaming_partitioner_is_not_given_to_one_of_graphs(register):
    register("modulo")(modulo())
    register("modulo")(modulo(passes=2))
    with pytest.raises(UsageError, match="'modulo' is registered as a streaming one"):
        partitioner("modulo")(lambda graph, k, *, seed, balance: np.zeros(graph.n_nodes, int))


@pytest.mark.parametrize("passes", [1, 3])
def test_a_class_with_three_methods_is_a_partitioner_everywhere(register, passes):
    register("modulo")(modulo(passes=passes))
    assert part_stream(EDGES, 3, "modulo", shift=2, n_nodes=50).owner_N[0] == 2
    steps, src = np.divmod(np.arange(300), 50)
    graph = graph_from_coo(src, (src + steps + 1) % 50, 50, edges="directed")
    assert graph.nnz == 300 and part_graph(graph, 3, "modulo").owner_N[4] == 1
    with pytest.raises(UsageError, match="did you mean 'shift'"):
        part_stream(EDGES, 3, "modulo", shfit=2)


@pytest.mark.parametrize("answer, error", [
    (np.zeros(49, int), "49 entries"), (np.full(50, 3), "owner 3"), (np.full(50, -1), "owner -1"), (np.zeros(50), "float64"),
    (np.zeros((50, 1), int), "shape"), ("nonsense", "returned str"), (np.full(50, np.nan), "float64"), ([None] * 50, "object"), ({}, "returned dict"), ([[1], [2, 3]], "failed with ValueError"), (np.array(["a"] * 50), "<U1"),
])  # fmt: skip
def test_the_result_of_a_plug_in_is_checked(register, answer, error):
    register("nonsense")(modulo(answer))
    with pytest.raises(PartitionError, match=error):
        part_stream(EDGES, 3, "nonsense", n_nodes=50)


def test_a_plug_in_that_fails_is_named_and_one_that_lacks_a_method_is_refused(register):
    class Failing(modulo()):
        def add(self, edges, number):
            raise ValueError("no")

    register("failing")(Failing)
    with pytest.raises(PartitionError, match="'failing' failed.*ValueError: no"):
        part_stream(EDGES, 3, "failing")
    for method, answer in (("start", 1 / 3), ("finish", None)):
        fails = {method: lambda self, *args, answer=answer, **options: answer if answer is None else 1 // 0}
        register("failing")(type("Failing", (modulo(),), fails))
        with pytest.raises(
            PartitionError,
            match="'failing' failed with ZeroDivisionError" if answer else r"'failing': finish\(\) returned NoneType",
        ):
            part_stream(EDGES, 3, "failing")
    with pytest.raises(UsageError, match="lacks add, finish"):
        register("half")(type("Half", (), {"start": lambda self, n_nodes, k: None}))
    with pytest.raises(UsageError, match="passes = 0"):
        register("none")(modulo(passes=0))
    with pytest.raises(UsageError, match="built in"):
        register("spring")(modulo())


def test_a_plug_in_cannot_write_into_the_stream(register):
    class Spoiling(modulo(passes=2)):
        def add(self, edges, number):
            super().add(edges, number)
            edges[:] = 0

    register("spoiling")(Spoiling)
    edges = EDGES.copy()
    part_stream(edges, 3, "spoiling")
    np.testing.assert_array_equal(edges, EDGES)
