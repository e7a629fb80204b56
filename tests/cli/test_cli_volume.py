"""partition and measure: parts on disk, rows and bytes in a table or as JSON."""

import json
import time

import pytest
from command_line import in_python, run

from spgnn.analysis import measure
from spgnn.data import load_graph
from spgnn.partition import part_graph

PARTITION_KEYS = {
    "k", "n", "nnz", "method", "total_rows", "max_send_rows", "mean_send_rows", "max_over_mean_send", "max_recv_rows",
    "messages", "edge_cut", "replication_factor", "nnz_imbalance", "node_imbalance", "seconds", "peak_rss_mb",
}  # fmt: skip
MEASURE_KEYS = (PARTITION_KEYS - {"peak_rss_mb"}) | {
    "scheme", "replication", "exchanges", "bytes_per_epoch", "work_imbalance", "layers", "label_entropy",
}  # fmt: skip
GRAPH = "path:n=12"


def test_partition_json_has_the_keys_that_scripts_read(capsys):
    code, out, err = run(capsys, "partition", GRAPH, "-k", 3, "--method", "block", "--json")
    assert code == 0
    report = json.loads(out)
    assert set(report) == PARTITION_KEYS
    # Three blocks of a path: two ends meet at each of two cuts, one row goes each way.
    assert (report["k"], report["n"], report["total_rows"], report["edge_cut"]) == (3, 12, 4, 4)
    assert report["peak_rss_mb"] > 10
    assert "--out DIR writes" in err


def test_methods_and_ranks_are_lists_in_measure_plan_and_partition(tmp_path, capsys):
    lists = ["--ranks", "2,4", "--method", "block,random", "--json"]
    for command, more in (("partition", []), ("measure", []), ("plan", ["--scheme", "cover"])):
        code, out, err = run(
            capsys, command, "sbm:n=12", *lists, *more, *["--replication", "1"] * (command != "partition")
        )
        lines = [json.loads(line) for line in out.splitlines()]
        assert code == 0, err
        key = "ranks" if command == "plan" else "k"
        assert [(line[key], line["method"]) for line in lines] == [
            (2, "block"), (2, "random"), (4, "block"), (4, "random")]  # fmt: skip
    measured = ["measure", GRAPH, "--replication", "1,2", "--method", "block", "--json"]
    lines = [json.loads(line) for line in run(capsys, *measured, "--ranks", "4")[1].splitlines()]
    assert [(line["k"], line["replication"]) for line in lines] == [(4, 1), (2, 2)]
    head, *rows = run(capsys, "partition", GRAPH, *lists[:4])[1].splitlines()[1:]
    assert head.split()[:4] == ["k", "method", "rows", "sent"] and len(rows) == 4
    for key in ("ranks", "k"):
        (tmp_path / "own.toml").write_text(f'{key} = 3\nmethod = "block"\n')
        assert json.loads(run(capsys, "partition", GRAPH, "--config", tmp_path / "own.toml", "--json")[1])["k"] == 3
    code, out, err = run(capsys, "measure", GRAPH, "-k", "2", "--ranks", "2")
    assert (code, out) == (2, "") and "-k 2 are numbers of parts, --ranks 2 of ranks; omit one of them" in err


def test_a_partition_is_measured_merged_into_fewer_parts(tmp_path, capsys):
    run(capsys, "partition", GRAPH, "-k", 6, "--method", "random", "--out", tmp_path / "p")
    measure = ["measure", GRAPH, "--partition", tmp_path / "p", "--json"]
    code, out, _ = run(capsys, *measure, "-k", "2,6")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [line["k"] for line in lines] == [2, 6]
    assert lines[1] == json.loads(run(capsys, *measure)[1])
    assert 0 < lines[0]["total_rows"] < lines[1]["total_rows"]
    code, _, err = run(capsys, *measure, "-k", "7")
    assert code == 2 and "-k 7:" in err and "has k = 6 parts; expected 6 or fewer" in err


@pytest.mark.parametrize("command", ["partition", "measure"])
def test_edges_are_used_both_ways_unless_told_otherwise(command, capsys):
    def nnz(*argv):
        return json.loads(run(capsys, command, "random_directed:n=30", "--method", "block", "--json", *argv)[1])["nnz"]

    assert nnz() == nnz("--edges", "undirected") > nnz("--edges", "directed") == nnz("--edges", "reversed")
    for name, same in (("both", "undirected"), ("out", "directed"), ("in", "reversed"), ("auto", "undirected")):
        assert nnz("--edges", name) == nnz("--edges", same)


@pytest.mark.parametrize(
    "other", [["random_directed:n=30,seed=1"], ["random_directed:n=30", "--edges", "directed"], ["path:n=31"]]
)
def test_a_partition_of_another_graph_or_other_edges_is_refused(other, tmp_path, capsys):
    run(capsys, "partition", "random_directed:n=30", "-k", 3, "--method", "block", "--out", tmp_path / "p")
    code, _, err = run(capsys, "measure", *other, "--partition", tmp_path / "p")
    assert code == 3 and "made for another graph" in err


@pytest.mark.parametrize("command", [("measure", "-k", "4"), ("plan", "--ranks", "4")], ids=["measure", "plan"])
def test_volume_makes_parts_for_each_scheme_as_train_does(command, capsys):
    name, *k = command
    spec, schemes = "sbm:n=600,degree=8,inside=0.5,seed=0", ("columns", "cover", "broadcast")
    options = f"--replication 1 --scheme {','.join(schemes)} --method volume,metis --json"
    code, out, _ = run(capsys, name, spec, *k, *options.split())
    found = {(line["method"], line["scheme"]): line["total_rows"] for line in map(json.loads, out.splitlines())}
    graph = load_graph(spec)
    assert code == 0 and found == {
        (method, scheme): measure(graph, part_graph(graph, 4, method, scheme=scheme), scheme).total_rows
        for method in ("volume", "metis")
        for scheme in schemes
    }
    assert found["volume", "cover"] < measure(graph, part_graph(graph, 4, "volume"), "cover").total_rows


@pytest.mark.parametrize("argv", [["--prune"], ["--layers", "1"]], ids=["pruned", "one layer kept"])
def test_rows_summed_are_of_one_product_of_all_rows_as_rows_sent_are(argv, capsys):
    argv = ["measure", "sbm:n=90,seed=1", "-k", "4", "--method", "block", "--replication", "2", *argv]
    head, line = run(capsys, *argv)[1].splitlines()[1:3]
    assert line[: head.index("rows summed") + len("rows summed")].split()[-1] == str(2 * 90)


def test_measure_of_one_combination_shows_the_layers(capsys):
    code, out, _ = run(capsys, "measure", "sbm:n=12,features=8,classes=2", "--method", "block", "--hidden", "4")
    title, _, _, blank, head, first, _, _, why = out.splitlines()
    assert code == 0 and blank == "" and head.split()[:3] == ["layer", "order", "widths"]
    assert "(A X) W, kept" in first and why == "layer 2: 2 <= 4"


def test_pruning_without_training_nodes_is_refused(capsys):
    code, out, err = run(capsys, "measure", GRAPH, "--prune")
    assert (code, out) == (3, "") and "path has no split and no labels" in err


def test_measure_simulates_an_epoch_on_a_machine(capsys):
    argv = ["measure", GRAPH, "-k", "4", "--method", "block", "--replication", "1,2", "--simulate"]
    code, out, _ = run(capsys, *argv, "--json")
    assert code == 0
    one, two = (json.loads(line) for line in out.splitlines())
    assert (one["simulated"]["ranks"], two["simulated"]["ranks"]) == (4, 8)
    for line in (one, two):
        parts = line["simulated"]["epoch_parts_s"]
        assert line["simulated"]["epoch_s"] == pytest.approx(sum(parts.values()) - 2 * parts["hidden"])
        assert line["simulated"]["machine"] == "laptop"
        tiers = {"rows_between_hosts", "bytes_between_hosts"} if line["simulated"]["hosts"] > 1 else set()
        assert set(line) == MEASURE_KEYS | {"simulated"} | tiers
    assert one["simulated"]["epoch_parts_s"]["sums"] == 0 < two["simulated"]["epoch_parts_s"]["sums"]
    code, out, _ = run(capsys, *argv, "--machine", "ethernet-1g")
    lines = out.splitlines()
    assert code == 0 and lines[1] == "simulated on ethernet-1g, in milliseconds"
    assert lines[2].split()[:2] == ["ranks", "k"] and [line.split()[0] for line in lines[3:]] == ["4", "8"]


@pytest.mark.slow
def test_a_thousand_ranks_are_simulated_in_seconds(capsys):
    start = time.process_time()
    argv = "measure rmat:scale=12 -k 1024 --method random --scheme columns,cover --simulate --json"
    code, out, _ = run(capsys, *argv.split())
    assert code == 0 and [json.loads(line)["simulated"]["ranks"] for line in out.splitlines()] == [1024, 1024]
    assert time.process_time() - start < 20  # of processors: others may keep the machine busy


def test_measure_takes_a_papers_features_and_classes_for_a_graph_without_and_says_so(capsys):
    code, out, err = run(capsys, "measure", GRAPH, "--method", "block", "--simulate")
    assert code == 0 and "widths 300, 128, 24" in out
    assert "has no features; predicted with 300 features and 24 classes" in err


@pytest.mark.slow
def test_the_commands_for_data_import_neither_torch_nor_mpi_and_plan_no_mpi(tmp_path):
    code = f"""
import sys
from spgnn.cli import main
native = {str(tmp_path / "native")!r}
(open({str(tmp_path / "edges.txt")!r}, "w")).write("0 1\\n1 2\\n")
codes = [
    main(["convert", {str(tmp_path / "edges.txt")!r}, native]),
    main(["check", native]),
    main(["info", native]),
    main(["partition", {GRAPH!r}, "--out", {str(tmp_path / "parts")!r}]),
    main(["measure", {GRAPH!r}]),
]
print(codes, [name for name in ("torch", "mpi4py") if name in sys.modules], file=sys.stderr)
code = main("plan sbm:n=12 --method block --machine ethernet-1g --ranks 2".split())
print(code, [name for name in ("mpi4py", "cupy") if name in sys.modules], file=sys.stderr)
"""
    assert {"[0, 0, 0, 0, 0] []", "0 []"} < set(in_python(code).stderr.splitlines())


def test_measure_counts_what_crosses_between_hosts(capsys):
    argv = ["measure", GRAPH, "-k", "4", "--method", "block", "--scheme", "cover,two-tier"]
    flat, tiered = (json.loads(line) for line in run(capsys, *argv, "--hosts", "2", "--json")[1].splitlines())
    assert (flat["scheme"], tiered["scheme"]) == ("cover", "two-tier")
    for name in ("rows_between_hosts", "bytes_between_hosts"):
        assert 0 < tiered[name] <= flat[name]
    assert "between hosts" in run(capsys, *argv, "--hosts", "2")[1]
    assert "between hosts" not in run(capsys, *argv)[1]


@pytest.mark.parametrize("ranks", ("-k 4,6", "--ranks 6,4", "-k 3 --replication 3"))
def test_measure_wants_as_many_ranks_on_each_host(ranks, capsys):
    hosts, named = ("2", "9 ranks") if "replication" in ranks else ("4", "6 ranks")
    code, _, err = run(capsys, "measure", GRAPH, *ranks.split(), "--hosts", hosts)
    assert code == 2 and f"--hosts {hosts}; expected a divisor of the {named}" in err
