"""The memory of a rank and a part: what each size adds. Buffers are a dry run's, see tests/spmm/test_dry_run.py."""

import pytest
import torch

from spgnn.analysis.epoch import gcn_of, without_values
from spgnn.analysis.training_memory import part_memory, partition_bytes, rank_memory
from spgnn.layers import GCN, Stack
from spgnn.spmm.dry.dry_operator import Setting

NONE = dict.fromkeys(("g", "s", "sender_nnz"), 0)
COUNTS = dict(n=3000, own_nnz=20_000, ghost_nnz=2000, g=500, s=400, sender_nnz=0)


def gcns(widths, residual=False, **dropout):
    hidden = lambda: [GCN(f, c, act="relu", residual=residual) for f, c in zip(widths, widths[1:-1])]
    return without_values(lambda: Stack(*hidden(), GCN(*widths[-2:]), **dropout))


def run(counts=COUNTS, widths=(64, 32, 8), itemsize=4, keep=True, steps=(), **chain):
    """The dry run of a Stack of GCN on a rank with these counts; steps: counts of its layers, T the rows that they read."""
    is_sparse = "x_nnz" in counts
    is_cached = keep and (not is_sparse or "kept_nnz" in counts)
    setting = Setting(
        features=widths[0], dtype=torch.bfloat16 if itemsize == 2 else torch.float32, is_sparse=is_sparse,
        is_cached=is_cached, has_ghosts=is_sparse and is_cached, is_exchanged=counts["g"] + counts["s"] > 0,
    )  # fmt: skip
    counts = counts | {"f": counts["g"]}
    if is_sparse:
        x = counts["x_nnz"]
        left = {"cached_nnz": counts.get("kept_nnz", 0), "step_nnz": x, "x_ghost_nnz": x * counts["g"] // counts["n"]}
        counts |= left
    for number, (of, read) in enumerate(steps, start=1):
        counts |= {f"T{number - 1}": read, f"T{number}": of["n"], f"f{number}": of["g"]}
        counts |= {f"{name}{number}": count for name, count in of.items() if name != "n"}
    return gcns(widths, **chain).run(setting, is_pruned=bool(steps)).on(counts)


def memory(counts=COUNTS, widths=(64, 32, 8), chain=None, itemsize=4, keep=True, steps=(), **changes):
    options = dict(n_ranks=2, n_nodes=6000, process_bytes=250e6)
    return rank_memory(run(counts, widths, itemsize, keep, steps, **chain or {}), **options | changes)


def test_the_parts_add_up_and_the_largest_is_named():
    found = memory()
    assert found.training == sum(found.parts.values()) == found.peak
    assert found.largest == "process"
    wide = memory(widths=(64, 40_000, 8))
    assert wide.largest == "activations and exchange buffers"


def test_cached_ghost_rows_of_x_take_memory_once():
    plain, dropped = (memory(chain={"dropout": rate}).parts for rate in (0.0, 0.5))
    assert plain["features"] == 3000 * 64 * 4 and "ghost rows of X" not in plain
    assert (
        dropped["features"] == 2 * 3000 * 64 * 4 and dropped["ghost rows of X"] == 500 * 64 * 4
    )  # dropout reads X too


@pytest.mark.parametrize("widths", [(64, 32, 8), (64, 8, 4)], ids=["A H first", "H W first"])
@pytest.mark.parametrize("x_nnz", [None, 30_000], ids=["dense", "sparse"])
def test_ghost_rows_of_x_are_held_in_either_order(widths, x_nnz):
    sizes = COUNTS | ({"x_nnz": x_nnz, "kept_nnz": 90_000} if x_nnz else {})  # of A X, which evaluations read
    found = memory(sizes, widths, chain={"dropout": 0.5}).parts["ghost rows of X"]
    assert found == (500 * 64 * 4 if x_nnz is None else 32 * x_nnz * 500 // 3000 + 8 * (500 + 64))


LONG_ROWS = dict(n=100_000, own_nnz=4_000_000, ghost_nnz=0, **NONE)  # 40 nonzeros each
TILES = 4_000_000 * 8 + 5 * 8 * 100_001


@pytest.mark.parametrize("sizes, widths, options, blocks", [
    (LONG_ROWS, (128, 256, 128), {}, 1), (LONG_ROWS, (128, 256, 128), {"is_symmetric": False}, 2),
    (LONG_ROWS | dict(g=100_000, ghost_nnz=4_000_000), (128, 256, 128), {}, 2),
    (LONG_ROWS, (128, 256), {}, 0),  # A X is kept
    (LONG_ROWS, (128, 256, 16), {}, 0),  # too narrow
    (LONG_ROWS, (128, 256, 256, 40), {"itemsize": 2}, 0),  # bfloat16: only the logits are not rounded, and they are too narrow
    (LONG_ROWS, (128, 256, 256), {"itemsize": 2}, 1),
    (LONG_ROWS | dict(g=10), (128, 256, 256, 40), {"itemsize": 2}, 1),  # beside a ghost part nothing is rounded at once
])  # fmt: skip
def test_tiles_are_those_of_the_products_of_every_epoch(sizes, widths, options, blocks):
    assert memory(sizes, widths, **options).parts["tiles"] == blocks * TILES


@pytest.mark.parametrize("kept_nnz, dropout, input_dropout, nnz", [
    (None, 0.0, True, 2_000_000), (None, 0.5, False, 2_000_000), (None, 0.5, True, 0), (3_000_000, 0.5, False, 3_000_000),
])  # fmt: skip
def test_sparse_features_have_tiles_where_their_weights_stay(kept_nnz, dropout, input_dropout, nnz):
    sizes = COUNTS | dict(n=100_000, x_nnz=2_000_000) | ({} if kept_nnz is None else {"kept_nnz": kept_nnz})
    chain = {"dropout": dropout, "input_dropout": input_dropout}
    found = memory(sizes, (1000, 128, 8), chain).parts["tiles"]
    assert found == (nnz * 8 + 17 * 8 * 1001 if nnz else 0)


def test_dense_x_goes_when_a_x_is_kept_unless_a_layer_reads_x():
    alone = dict(n=100_000, own_nnz=400_000, ghost_nnz=0, **NONE)
    x = 100_000 * 64 * 4
    found = lambda widths, **options: memory(alone, widths, n_ranks=1, **options).parts
    wide, narrow, kept_not = found((64, 64, 8)), found((64, 8, 4)), found((64, 8, 4), keep=False)
    residual, dropped = ({"residual": True}, {"dropout": 0.5})
    assert wide["features"] == kept_not["features"] == x
    assert found((64, 64, 8), chain=residual)["features"] == 2 * x
    assert found((64, 64, 8), chain=dropped)["features"] == 2 * x, "evaluations have no dropout, and take A X"
    assert found((64, 64, 8), chain=dropped, keep=False)["features"] == x
    # Narrow activations take less than X did; wide ones take its memory over.
    assert narrow["X until A X is kept"] == x - narrow["activations and exchange buffers"] > 0
    assert wide["X until A X is kept"] == kept_not["X until A X is kept"] == 0
    assert found((64, 64, 8), chain=residual)["X until A X is kept"] == 0
    rounded = memory(COUNTS | dict(g=10**6, s=0), itemsize=2).parts  # bfloat16 is added up in float32
    assert (
        rounded["X until A X is kept"] + rounded["activations and exchange buffers"]
        == (3000 + 10**6) * 64 * 2 + 3000 * 64 * 4
    )
    ghosts = memory(COUNTS | dict(g=10**6)).parts  # as wide as X while A X is made
    assert ghosts["X until A X is kept"] == (3000 + 10**6 + 400) * 64 * 4 - ghosts["activations and exchange buffers"]


@pytest.mark.parametrize("chain", [{}, {"dropout": 0.5}], ids=["kept", "dropped out"])
def test_pruned_steps_add_an_operator_rows_of_x_and_buffers_of_their_own(chain):
    whole = memory(COUNTS | dict(n=30_000), chain=chain)
    few, many, nearly_all = (
        memory(
            COUNTS | dict(n=30_000),
            chain=chain,
            steps=[
                (dict(n=n, own_nnz=10_000, ghost_nnz=500, g=100, s=80, sender_nnz=0), 2 * n),
                (dict(n=n // 2, own_nnz=5000, ghost_nnz=200, g=60, s=50, sender_nnz=0), n),
            ],
        )
        for n in (2000, 8000, 14_900)
    )
    part = "operator and features of pruned rows"
    assert part not in whole.parts and 0 < few.parts[part] < many.parts[part]
    buffers = [m.parts["activations and exchange buffers"] for m in (few, many)]
    assert buffers[0] <= buffers[1]
    assert few.training < whole.training < nearly_all.training, "few rows take less than all, all but a few much more"
    assert few.parts["operator"] == whole.parts["operator"], "evaluations multiply all rows"


def test_rank_0_needs_the_whole_graph_for_a_while_unless_each_rank_reads_its_part():
    graph = dict(nodes=10**6, stored_nnz=10**7, nnz=2 * 10**7, x_bytes=10**9, y_bytes=8 * 10**6, is_symmetrised=True)
    root, other = memory(root=graph), memory()
    assert root.loading > 1e9 + 8 * 2e7 and root.peak == root.loading
    assert root.largest == "reading and partitioning the graph on rank 0"
    assert other.loading == 0


def test_metis_needs_memory_of_its_own_which_streaming_partitioners_do_not():
    graph = dict(nodes=10**6, stored_nnz=2 * 10**7, nnz=2 * 10**7, x_bytes=0, y_bytes=0, is_symmetrised=False)
    loading = {method: memory(root=graph, method=method).loading for method in ("metis", "volume", "spring", "block")}
    assert loading["metis"] == loading["volume"] > loading["spring"] + 100 * graph["nnz"]
    assert loading["spring"] == loading["block"]
    a_nonzero = [partition_bytes(nnz, "metis") / nnz for nnz in (10**3, 4 * 10**6, 8 * 10**6, 32 * 10**6, 10**9)]
    assert a_nonzero == [100, 100, 115, 145, 145] and partition_bytes(0, "metis") == 0


def test_rank_0_holds_its_own_rows_and_a_round_beside_the_graph():
    graph = dict(nodes=10**6, stored_nnz=10**6, nnz=10**6, x_bytes=4 * 10**9, y_bytes=0, is_symmetrised=False)
    base = 250e6 + 16e6 + 4e9 + 16e6
    two, many = (memory(n_ranks=P, n_nodes=10**6, root=graph).loading for P in (2, 1000))
    assert two == pytest.approx(base + 2e9 + 4e6 + 2e9, rel=1e-6)
    assert many == pytest.approx(base + 100e6, rel=1e-2)  # METIS takes more than 4 MB of rows and a round of 64


ALONE = dict.fromkeys(("ghost_nnz", "g", "s", "sender_nnz"), 0)


def test_a_host_beside_a_device_holds_neither_activations_nor_tiles():
    sizes = ALONE | dict(n=100_000, own_nnz=4_000_000)
    host = rank_memory(run(sizes, (128, 256, 128)), n_ranks=1, n_nodes=100_000, process_bytes=2e8)
    assert host.parts["tiles"] == 4_000_000 * 8 + 5 * 8 * 100_001
    gone = {"activations and exchange buffers": 0, "tiles": 0}
    assert host.beside_device().parts == host.parts | gone and host.training > host.beside_device().training


PROCESS = 250e6
GRAPH = {"n": 10**6, "own_nnz": 2 * 10**7}


@pytest.mark.parametrize("x_nnz", [None, 10**7], ids=["dense", "sparse"])
def test_a_part_takes_less_the_more_parts_there_are_and_never_less_than_its_process(x_nnz):
    graph = GRAPH | ({"x_nnz": x_nnz} if x_nnz else {})
    setting = Setting(features=128, is_sparse=x_nnz is not None, has_ghosts=x_nnz is not None)
    taken = [
        part_memory(gcn_of((128, 64, 40)), setting, graph, k, process_bytes=PROCESS).peak for k in (1, 2, 4, 64, 4096)
    ]
    assert all(more > less for more, less in zip(taken, taken[1:]))
    assert PROCESS < taken[-1] < 1.25 * PROCESS
    rows = [size - taken[-1] for size in taken]
    assert rows[0] / rows[1] == pytest.approx(2, rel=0.02) and rows[0] / rows[2] == pytest.approx(4, rel=0.02)


def test_a_halo_takes_as_much_as_so_many_more_rows():
    model, setting = gcn_of((128, 64, 40)), Setting(features=128)
    taken = lambda k, halo: part_memory(model, setting, GRAPH, k, halo=halo, process_bytes=PROCESS).peak
    assert taken(8, 2.0) == pytest.approx(taken(4, 1.0), rel=1e-6)
    assert taken(1, 1.5) == taken(1, 1.0)  # all rows are own ones
