"""measure() predicts an epoch: rows of each exchange times the width that travels."""

import json

import numpy as np
import pytest
from command_line import in_python

from spgnn.analysis import measure
from spgnn.errors import PartitionError, UsageError
from spgnn.graph import graph_from_coo
from spgnn.partition import Partition, part_graph

FIXED_KEYS = (
    "k n nnz method scheme replication total_rows max_send_rows mean_send_rows max_over_mean_send max_recv_rows "
    "messages edge_cut replication_factor nnz_imbalance node_imbalance seconds exchanges bytes_per_epoch"
).split()


def directed(n=50, seed=0):
    rng = np.random.default_rng(seed)
    return graph_from_coo(rng.integers(0, n, 3 * n), rng.integers(0, n, 3 * n), n, edges="directed")


@pytest.mark.parametrize("features", [32, 33])
@pytest.mark.parametrize("sparse", [False, True])
def test_an_input_with_dropout_is_exchanged_every_epoch_unless_its_ghost_rows_are_cached(features, sparse):
    graph, part = directed(), part_graph(directed(), 3)
    options = {"widths": (features, 16, 24), "input_is_fixed": False, "itemsize": 8, "sparse_input": sparse}
    cached, made = (measure(graph, part, keep=keep, **options) for keep in (True, False))
    widths = lambda report: [(e["layer"], e["direction"], e["width"]) for e in report.exchanges]
    assert widths(cached) == [(2, "forward", 16), (2, "backward", 16)]
    assert cached.bytes_per_epoch == cached.total_rows * (16 + 16) * 8
    assert cached.layers[0].order == ("gemm_first" if sparse or features == 33 else "spmm_first")
    first = (
        [(1, "forward", 32)] if cached.layers[0].order == "spmm_first" else [(1, "forward", 16), (1, "backward", 16)]
    )
    assert [sent for sent in widths(made) if sent[0] == 1] == first


def test_an_empty_part_sends_no_message():
    graph = directed(5)
    for scheme in ("columns", "broadcast"):
        report = measure(graph, part_graph(graph, 9), scheme, (4, 4, 4))
        assert report.rows_PP[5:].sum() == 0
    assert report.messages == 5 * 8


def test_the_report_has_the_json_keys_of_the_design_and_two_more_and_is_json():
    graph = directed()
    part = part_graph(graph, 3, "block")
    report = measure(graph, part, widths=(8, 8, 4)).to_dict()
    assert list(report) == [*FIXED_KEYS, "work_imbalance", "layers"]
    assert json.loads(json.dumps(report)) == report
    assert part.metrics.items() <= report.items()


def test_an_owner_array_is_measured_as_a_partition_is():
    graph = directed()
    part = part_graph(graph, 3)
    by_array, by_part = (measure(graph, p, widths=(8, 8, 4)).to_dict() for p in (part.owner_N, part))
    assert by_array == by_part | {"method": "given", "seconds": 0.0}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"replication": 3},
            UsageError,
            "3 does not fit k = 2 parts: P = k c = 6 ranks, and c.2 must divide P; those that work: 1, 2",
        ),
        ({"replication": 0}, UsageError, "replication 0 does not fit k = 2"),
        ({"itemsize": 4.0}, UsageError, "itemsize = 4.0; expected an integer"),
        ({"evaluations": "1"}, UsageError, "evaluations = '1'; expected an integer"),
        ({"replication": 2.0}, UsageError, "replication = 2.0; expected an integer"),
        ({"replication": "2"}, UsageError, "replication = '2'; expected an integer"),
        ({"wire": "float15"}, UsageError, "'float15' is not known; did you mean 'float16'"),
        ({"input_gradient": True}, UsageError, "expected keep=False"),
        ({"train_N": np.arange(50)}, UsageError, "expected one bool per node"),
        ({"scheme": "colums"}, UsageError, "'colums' is not known; did you mean 'columns'"),
        ({"widths": (5,)}, UsageError, "at least two positive widths"),
        ({"widths": (5, 0)}, UsageError, "at least two positive widths"),
        ({"itemsize": 0}, UsageError, "itemsize = 0"),
        ({"partition": np.zeros(7, int)}, PartitionError, "7 entries, the graph has 50 nodes; was this partition made"),
        ({"partition": Partition(np.zeros(7, int), 1)}, PartitionError, "7 entries, graph has 50 nodes; was this"),
        ({"partition": np.array([0, 5] * 25)}, PartitionError, "part 1 owns no node"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(options, error, message):
    with pytest.raises(error, match=message):
        measure(**{"graph": directed(), "partition": np.arange(50) % 2, "widths": (8, 4)} | options)


@pytest.mark.parametrize("direction", ["sideways", "forwards"])
def test_bytes_of_a_direction_or_layer_that_is_not_there_are_refused(direction):
    graph = directed()
    report = measure(graph, part_graph(graph, 2), widths=(8, 8, 4))
    with pytest.raises(UsageError, match="is not known"):
        report.bytes_PP(1, direction)
    with pytest.raises(UsageError, match="layer 3 does not exist; expected 1 to 2"):
        report.bytes_PP(3)


@pytest.mark.slow
def test_partition_and_analysis_work_with_neither_torch_nor_mpi():
    script = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['mpi4py'] = None\n"
        "import numpy as np, spgnn\n"
        "graph = spgnn.graph_from_coo(np.arange(9), np.arange(1, 10))\n"
        "for method in ('block', 'random', 'metis'):\n"
        "    print(spgnn.measure(graph, spgnn.part_graph(graph, 2, method)))\n"
    )
    done = in_python(script)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("widths", [None, 5, (4, None), ("a", 3)])
def test_widths_that_are_none_are_refused_in_words(widths):
    with pytest.raises(UsageError, match=r"expected columns of X and of each layer's output, such as \(128, 16, 40\)"):
        measure(graph_from_coo([0, 1], [1, 2], 3), [0, 0, 1], widths=widths)
