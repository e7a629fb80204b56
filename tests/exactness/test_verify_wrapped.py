"""verify of modules of PyG: no false alarm, and planted differences, of modules and of wrap, are found; skipped without PyG."""

import sys
import warnings

import pytest
from scripts import RUNS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("torch_geometric.nn")
sys.path.insert(0, str(RUNS / "bench"))

import wrap_planted  # noqa: E402

pytestmark = pytest.mark.slow
# Rows of edges and loops, shared weights, no weights, equal messages under max, gradients of 0; all: runs/bench/wrap_table.
NAMES = (
    "GCNConv",
    "GCNConv, improved",
    "GATConv, edges",
    "GATv2Conv, shared",
    "APPNP",
    "PointGNNConv",
    "GAT v2, LayerNorm",
)


@pytest.mark.parametrize("kind", ["plain", "weights", "edges"])
def test_exact_modules_are_not_found_wrong_on_graphs_without_and_with_weights_and_attributes(kind):
    count, wrong = wrap_planted.false_alarms(kind, lambda name: name in NAMES)
    assert not wrong and count >= len(NAMES) - 1


@pytest.mark.parametrize("name", [*wrap_planted.PLANTED, *wrap_planted.EDITS])
def test_a_planted_difference_is_found_or_refused(name):
    assert wrap_planted.is_found(name)
