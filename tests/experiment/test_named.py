"""A run keeps the names of nodes and classes, the split that it used, and its summary for those who ask again."""

import csv
import json

import numpy as np
import pytest
from command_line import run as command
from worlds import parallel

from spgnn.config import TrainConfig
from spgnn.data import load_graph, save_graph
from spgnn.dist import SelfCommunicator
from spgnn.errors import FormatError, UsageError
from spgnn.experiment import predict, run
from spgnn.experiment.named import Names, prediction_columns
from spgnn.graph import NodeTypes, random_split
from spgnn.partition import part_graph, save_partition

IDS = ['a,"b"', "ü", "-", "9", *map("node {}".format, range(4, 24))]
CLASSES = ["red", "deep blue"]


def named_graph(folder, **fields):
    """Write a graph whose nodes and classes have names; return its path."""
    graph = load_graph("sbm:n=24,classes=2,features=4,seed=1")
    kept = {name: getattr(graph, name) for name in graph.__dataclass_fields__}
    save_graph(type(graph)(**kept | {"ids": np.array(IDS, object), "classes": CLASSES} | fields), folder / "named")
    return str(folder / "named")


def table(path) -> list[list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@parallel([1, 3], mpi=[2])
@pytest.mark.parametrize("mode", ["full", "average", "folder"])
def test_a_run_has_the_names_and_the_split_of_its_graph(comm, tmp_path, mode):
    source, options = str(tmp_path / "named"), {"mode": "average", "parts": 4} if mode == "average" else {}
    if comm.rank == 0:
        graph = load_graph(named_graph(tmp_path)).in_use()
        if mode == "folder":
            save_partition(part_graph(graph, comm.size, "random"), tmp_path / "parts", graph)
    source = str(tmp_path / "parts") if mode == "folder" else source
    out = str(tmp_path / "run")
    comm.barrier()
    run(source, TrainConfig(out=out, epochs=2, hidden=3, method="random", **options), comm)
    predict(out, comm, out=str(tmp_path / "p.csv"), proba=True, evaluation="together")
    predict(out, comm, out=str(tmp_path / "p.npy"), proba=True, evaluation="together")
    comm.barrier()
    classes_N, rows, proba_NC = (
        np.load(f"{out}/predictions.npy"),
        table(f"{out}/predictions.csv"),
        np.load(tmp_path / "p.npy"),
    )
    assert rows == [["id", "class"], *([name, CLASSES[c]] for name, c in zip(IDS, classes_N))]
    assert np.array_equal(np.load(f"{out}/split.npy"), load_graph(str(tmp_path / "named")).split)
    assert np.load(f"{out}/split.npy").dtype == np.int8
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["classes"] == [of_class["name"] for of_class in summary["per_class"]] == CLASSES
    head, *lines = table(tmp_path / "p.csv")
    assert head == ["id", "class", "p_red", "p_deep blue"] and [line[:2] for line in lines] == rows[1:]
    assert np.array_equal(np.array([line[2:] for line in lines], np.float32), proba_NC) and proba_NC.dtype == np.float32
    assert np.array_equal(proba_NC.argmax(1), classes_N)
    np.testing.assert_allclose(proba_NC.sum(1), 1, rtol=1e-6)
    comm.barrier()


def test_predictions_are_parquet_on_request_and_another_graph_has_the_classes_of_the_run(tmp_path):
    parquet, comm = pytest.importorskip("pyarrow.parquet"), SelfCommunicator()
    source, out = named_graph(tmp_path), str(tmp_path / "run")
    run(source, TrainConfig(out=out, epochs=1, hidden=3), comm)
    with pytest.raises(UsageError, match="proba requires out"):
        predict(out, comm, proba=True)
    for files, said in (({"out": "p.tsv"}, "out p.tsv: expected a file .npy or .csv or .parquet"),
                        ({"out": "p.csv", "embeddings": "e.csv"}, "embeddings e.csv: expected a file .npy")):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            predict(out, comm, **files)
    predict(out, comm, source="sbm:n=30,classes=2,features=4", out=str(tmp_path / "p.parquet"), proba=True)
    found = parquet.read_table(tmp_path / "p.parquet")
    assert found.column_names == ["id", "class", "p_red", "p_deep blue"]
    assert found["id"].to_pylist() == list(range(30)) and set(found["class"].to_pylist()) <= set(CLASSES)


def test_classes_of_a_node_with_several_are_joined(tmp_path):
    y = np.random.default_rng(0).integers(0, 2, (24, 2)).astype(np.int8)
    run(named_graph(tmp_path, y=y), TrainConfig(out=str(tmp_path / "run"), epochs=1), SelfCommunicator())
    expected = [";".join(np.array(CLASSES)[row > 0]) for row in np.load(tmp_path / "run" / "predictions.npy")]
    assert [line[1] for line in table(tmp_path / "run" / "predictions.csv")[1:]] == expected


def test_a_run_that_has_ended_is_shown_again_to_the_letter_without_its_graph(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = ["train", named_graph(tmp_path), "--hidden", "3", "--out", "run", "--epochs", "2", "--resume", "auto"]
    kept = lambda: {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.*")}
    first = command(capsys, *argv, "--json")[1]
    files = kept()
    for words in (argv, ["train", "--resume", "run"]):
        code, out, err = command(capsys, *words, "--json")
        assert code == 0 and out == first and "run has ended: nothing is trained" in err and "edges" not in err
        assert "test accuracy" in command(capsys, *words)[1]
    assert kept() == files
    code, _, err = command(capsys, "train", "run")
    assert code == 3 and "run: is a run, not a graph; `spgnn train --resume run` continues it" in err
    code, _, err = command(capsys, *argv, "--eval-every", 2)  # another question: trained and scored as before
    assert code == 0 and "has ended" not in err


SPLIT = random_split(np.zeros(24, int), 3)
MASKS = np.stack([SPLIT == role for role in (0, 1, 2)], axis=1)
LISTS = {name: np.flatnonzero(SPLIT == role) for role, name in enumerate(("train", "valid", "test"))}
WORDS = "".join(f"{('train', 'val', 'test', 'none')[role]}\n" for role in SPLIT)


def write_split(path, kind):
    match kind:
        case "uint8" | "int64" | "bool":
            np.save(path.with_suffix(".npy"), MASKS if kind == "bool" else SPLIT.astype(kind))
        case "ones":
            masks = {name: MASKS[:, r].astype(int).tolist() for r, name in enumerate(LISTS)}
            path.with_suffix(".json").write_text(json.dumps(masks))
        case "lists":
            np.savez(path.with_suffix(".npz"), **LISTS)
        case "masks":
            np.savez(path.with_suffix(".npz"), **{f"{name}_mask": MASKS[:, r] for r, name in enumerate(LISTS)})
        case "json":
            path.with_suffix(".json").write_text(json.dumps({name: ids.tolist() for name, ids in LISTS.items()}))
        case "csv":
            path.with_suffix(".csv").write_text("split\n" + WORDS)
        case "columns":
            lines = "".join(f'"{name.replace(chr(34), chr(34) * 2)}",{role}\n' for name, role in zip(IDS, SPLIT))
            path.with_suffix(".csv").write_text("id,split\n" + lines)
    return str(next(path.parent.glob("split.*")))


@pytest.mark.parametrize("kind", ["uint8", "int64", "bool", "lists", "masks", "ones", "json", "csv", "columns"])
def test_a_split_of_any_form_is_used_and_kept(tmp_path, capsys, kind):
    source, file = named_graph(tmp_path, split=None), write_split(tmp_path / "split", kind)
    code, out, err = command(capsys, "train", source, "--epochs", 1, "--split", file, "--out", tmp_path / "run")
    assert code == 0 and np.array_equal(np.load(tmp_path / "run" / "split.npy"), SPLIT), err
    assert command(capsys, "predict", tmp_path / "run")[0] == 0  # the graph, with its split, is the one of the run
    assert command(capsys, "plan", source, "--split", file, "--ranks", 2)[0] == 0


@pytest.mark.parametrize("value, said", [
    ({"train": [0, 24]}, "names node 24; expected 0 to 23"), ({"train": [3], "test": [3]}, "node 3 is in two parts"),
    ({"trian": [3]}, "'trian' is no part of a split"), ({"train": [0.5]}, "expected ids, or a mask"),
    ({}, "is no object of lists"), (np.ones(24, bool), r"expected \(N, 3\): masks of train, val and test"),
    (np.eye(3, dtype=int)[[0, 1, 2] * 8], r"one 1 in a row: masks\? save them with .astype\(bool\)"),
    (MASKS | MASKS[:, ::-1], "in two parts of the split"),
])  # fmt: skip
def test_lists_that_are_no_split_are_refused(value, said):
    with pytest.raises(FormatError, match=said):
        load_graph("sbm:n=24", split=value)


def test_a_split_file_is_no_output_and_not_for_parts(tmp_path, capsys):
    source, file = named_graph(tmp_path), write_split(tmp_path / "split", "uint8")
    assert command(capsys, "partition", source, "-k", 2, "--out", tmp_path / "parts")[0] == 0
    code, _, err = command(capsys, "train", tmp_path / "parts", "--split", file, "--out", tmp_path / "run")
    assert code == 2 and "--split" in err and "is a partition folder" in err
    code, _, err = command(capsys, "train", source, "--split", file, "--out", "none", "--trace", file)
    assert code == 2 and "which is an input" in err
    code, _, err = command(capsys, "train", source, "--split", "mine", "--out", "none")
    assert code == 2 and "expected random, given, auto, its number or its file" in err


def test_partition_is_refused_before_the_work(tmp_path, capsys):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine").write_text("")
    code, _, err = command(capsys, "partition", "absent", "-k", 2, "--out", tmp_path / "kept")
    assert code == 2 and "exists and is not a partition" in err


def test_rows_of_one_type_have_the_keys_of_its_table():
    names = Names(np.array(["a:1", "b:1", "b:2"], object))
    names.keep_types(NodeTypes(("a", "b"), (0, 1, 3)), ("b",))
    assert prediction_columns(np.array([0, 1, 0]), names)["id"].tolist() == ["1", "2"]
