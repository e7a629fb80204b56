"""spgnn plan sizes:... predicts what plan predicts of a graph of these sizes, and names the commands that train it."""

import json
from pathlib import Path

import pytest
from command_line import run
from test_commands import refusals

SIZES = "sizes:nodes=20000,edges=99830,features=64,classes=8"  # of the graph below, whose nonzeros are both ways
GRAPH = "sbm:n=20000,classes=8,features=64,seed=1"
MODEL = ("--layers", "3", "--machine", "ethernet-1g")
LARGE = "sizes:nodes=111M,edges=1.6G,features=128,classes=172"


def lines_of(capsys, *argv):
    code, out, err = run(capsys, "plan", *argv, "--json")
    return code, [json.loads(line) for line in out.splitlines()], err


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_sizes_predict_what_a_graph_in_random_parts_does(model, capsys):
    """Memory within 5 %, bytes within 5 %, seconds within a quarter, on one rank and on four."""
    options = ("--ranks", "1,4", *MODEL, "--model", model)
    graph = ("--method", "random", "--scheme", "columns", "--replication", "1")
    _, of_graph, _ = lines_of(capsys, GRAPH, *options, *graph)
    code, of_sizes, _ = lines_of(capsys, SIZES, *options)
    assert code == 0 and [line["mode"] for line in of_sizes] == ["full", "full"]
    for found, wanted in zip(of_sizes, of_graph, strict=True):
        assert found["memory_mb"] == pytest.approx(wanted["memory_mb"], rel=0.05)
        assert found["bytes_per_epoch"] == pytest.approx(wanted["bytes_per_epoch"], rel=0.05)
        assert found["epoch_s"] == pytest.approx(wanted["epoch_s"], rel=0.25)
    assert sum(line["fastest"] for line in of_sizes) == 1


def test_what_does_not_fit_is_planned_out_of_core_with_its_commands(capsys):
    options = (LARGE + ",halo=2", "--ranks", "1,8", *MODEL, "--memory", "64GB", "--hidden", "256", "--no-bias")
    code, lines, _ = lines_of(capsys, *options)
    assert code == 0
    modes = [(line["ranks"], line["mode"], line["fits"]) for line in lines]
    assert modes == [(P, mode, mode != "full") for P in (1, 8) for mode in ("full", "out-of-core")]
    for line in lines[1::2]:
        assert line["parts"] % line["ranks"] == 0 and line["memory_mb"] < line["available_mb"] == 64e3
        assert line["disk_bytes"] > 111e6 * 128 * 4 and line["disk_read_bytes"] > line["disk_bytes"]
    _, out, _ = run(capsys, "plan", *options)
    cut, train = (line.strip() for line in out.splitlines()[-2:])
    assert f"-k {lines[-1]['parts']} --method spring --memory 64GB" in cut
    assert train == "srun -N 8 -n 8 spgnn train parts --hidden 256 --layers 3 --no-bias --mode out-of-core"
    assert not refusals([cut.split(), train.split()[5:]], __import__("sys").executable)


def test_few_labels_leave_out_rows_of_a_step_in_memory(capsys):
    _, (whole,), _ = lines_of(capsys, SIZES, "--ranks", "4", *MODEL)
    _, (pruned,), _ = lines_of(capsys, SIZES + ",labelled=0.01", "--ranks", "4", *MODEL)
    assert pruned["epoch_s"] < 0.8 * whole["epoch_s"] and pruned["bytes_per_epoch"] < whole["bytes_per_epoch"]


@pytest.mark.parametrize(
    "spec, options, message",
    [
        ("sizes:nodes=5", (), "edges, features, classes missing; expected sizes:nodes=111M"),
        (SIZES + ",edge=3", (), "unknown size 'edge'; did you mean 'edges'?"),
        (SIZES + ",nodes=many", (), "nodes = 'many'; expected an integer of 1 or more, such as 1.6G"),
        (SIZES + ",nodes=1.5", (), "expected an integer of 1 or more"),
        (SIZES + ",halo=0.5", (), "halo = '0.5'; expected a number of 1 or more"),
        (SIZES + ",labelled=7", (), "labelled = '7'; expected a share, 0 to 1"),
        (SIZES, ("--partition", "p"), "sizes: has no files; omit it"),
        (SIZES, ("--task", "links"), "omit --on and --task"),
        (LARGE, ("--memory", "500MB"), "no run fits: a rank needs"),
    ],
)
def test_what_sizes_cannot_be_is_one_error(spec, options, message, capsys):
    code, out, err = run(capsys, "plan", spec, *MODEL, *options)
    assert code == (4 if "fits" in message else 2) and message in err and "Traceback" not in err


def test_sizes_are_no_graph_to_train_on(capsys):
    code, _, err = run(capsys, "train", SIZES)
    assert code != 0 and "sizes: is a GRAPH of `spgnn plan` alone" in err and not Path(SIZES).exists()
