"""A training on a folder of parts: what goes with it, values in it that cannot be, and a folder of results that is another's."""

import json

import numpy as np
import pytest
from edited_parts import redigested

from spgnn.config import TrainConfig
from spgnn.data import load_graph
from spgnn.dist import SelfCommunicator
from spgnn.errors import CheckpointError, InputError, PartitionError, ResourceError, SpgnnError, UsageError
from spgnn.experiment import predict, run
from spgnn.experiment.checkpoint import seal
from spgnn.experiment.opening import Source
from spgnn.graph import graph_from_coo
from spgnn.partition import part_graph, save_partition


def graph(name="mine"):
    rng = np.random.default_rng(0)
    return graph_from_coo(
        rng.integers(0, 40, 120), rng.integers(0, 40, 120), 40, name=name,
        X=rng.normal(size=(40, 3)).astype(np.float32), y=np.arange(40) % 3, split=(np.arange(40) % 3).astype(np.int8),
    )  # fmt: skip


@pytest.fixture
def parts(tmp_path):
    save_partition(part_graph(graph(), 1, method="block"), tmp_path / "parts", graph())
    return tmp_path / "parts"


def training(source, **options):
    return run(str(source), TrainConfig(epochs=1, **options), SelfCommunicator())


@pytest.mark.parametrize("as_graph", [True, False])
@pytest.mark.parametrize("option, value, said", [
    ("features", "X.npy", "features X.npy applies when a graph is read, and .*parts is a partition folder"), ("labels", "y.npy", "labels y.npy applies when a graph is read"),
    ("format", "nosuch", "format nosuch applies when a graph is read"), ("method", "random", "method random: .*parts was made by block; omit it"),
])  # fmt: skip
def test_what_a_graph_is_read_with_does_not_go_with_parts(parts, tmp_path, as_graph, option, value, said):
    where = {} if as_graph else {"partition": str(parts)}
    with pytest.raises(UsageError, match=said):
        training(parts if as_graph else "mine", **where, out=str(tmp_path / "out"), **{option: value})
    assert not (tmp_path / "out").exists()


def test_a_graph_that_is_not_what_the_parts_were_made_of_is_refused(parts, tmp_path):
    (tmp_path / "other.txt").write_text("0 1\n")
    (tmp_path / "mine.txt").write_text("0 1\n")
    with pytest.raises(
        InputError, match="nosuch: no such file or folder; .*parts was made for 'mine', name that graph"
    ):
        training("nosuch", partition=str(parts))
    with pytest.raises(PartitionError, match="was made for 'mine', not '.*other.txt'"):
        training(tmp_path / "other.txt", partition=str(parts))
    for source in ("mine", tmp_path / "mine.txt"):
        assert training(source, partition=str(parts))["n"] == 40


def test_parts_of_a_generated_graph_are_found_by_its_kind(tmp_path):
    spec = "sbm:n=60,classes=3,features=4"
    save_partition(part_graph(load_graph(spec), 1, "block"), tmp_path / "parts", load_graph(spec))
    assert training(spec, partition=str(tmp_path / "parts"), hidden=2)["n"] == 60
    for source in ("rmat:scale=6", "wordnet"):
        with pytest.raises(PartitionError, match="was made for 'sbm-60-3', not '"):
            training(source, partition=str(tmp_path / "parts"))


@pytest.fixture(scope="module")
def cora(data_dir):
    prefix = data_dir / "planetoid" / "ind.cora"
    if not prefix.with_name("ind.cora.graph").is_file():
        pytest.skip("no Planetoid files")
    return prefix


@pytest.mark.data
def test_the_prefix_of_planetoid_files_names_the_graph_of_its_parts(cora, tmp_path):
    whole = load_graph(cora)
    save_partition(part_graph(whole, 1, method="block"), tmp_path / "cora", whole)
    assert training(cora, partition=str(tmp_path / "cora"), hidden=4)["n"] == 2708


def test_planetoid_files_that_are_not_there_or_not_of_the_parts_are_refused(parts, tmp_path):
    for name in ("graph", "allx"):
        (tmp_path / f"ind.mine.{name}").write_text("")
    with pytest.raises(PartitionError, match="was made for 'mine', not '.*ind.mine'"):
        training(tmp_path / "ind.mine", partition=str(parts))
    with pytest.raises(InputError, match="ind.yours: no such file or folder"):
        training(tmp_path / "ind.yours", partition=str(parts))


def spoil(path, at, value):
    array = np.load(path, mmap_mode="r+")
    array[at] = value
    array.flush()
    redigested(path.parents[1])


@pytest.mark.parametrize("file, at, value, said", [
    ("features", (7, 1), np.nan, "features.npy: node 7 has a feature that is not finite"),
    ("features", (31, 0), np.inf, "features.npy: node 31 has a feature that is not finite"), ("labels", 9, -9, "labels.npy: node 9 has -9, not -1 to 40000"),
    ("split", 5, 3, "split.npy: node 5 has 3, not -1 to 2"), ("labels", 9, 1 << 30, "labels.npy: node 9 has 1073741824, not -1 to 40000"),
])  # fmt: skip
def test_values_in_a_part_that_cannot_be_are_named_by_file_and_node(parts, monkeypatch, file, at, value, said):
    monkeypatch.setattr("spgnn.partition.folder.blocks.VALUES_AT_A_TIME", 10)
    spoil(parts / "part-00000" / f"{file}.npy", at, value)
    with pytest.raises(PartitionError, match=said):
        training(parts)


def test_many_labels_are_looked_at_too(tmp_path):
    many = graph_from_coo([0, 1], [1, 2], 3, y=np.eye(3, dtype=np.int64), X=np.eye(3))
    save_partition(part_graph(many, 1, method="block"), tmp_path / "many", many)
    spoil(tmp_path / "many" / "part-00000" / "labels.npy", (2, 0), 2)
    with pytest.raises(PartitionError, match="labels.npy: node 2 has 2, not 0 to 1"):
        training(tmp_path / "many")


def test_two_trainings_do_not_write_one_folder(tmp_path, monkeypatch):
    out = str(tmp_path / "out")
    whole = Source.read

    def meanwhile(*args, **checks):
        monkeypatch.setattr(Source, "read", whole)
        with pytest.raises(ResourceError, match="out: another training uses it; wait, or choose another folder"):
            training("sbm:n=50", out=out, seed=2)
        return whole(*args, **checks)

    monkeypatch.setattr(Source, "read", meanwhile)
    training("sbm:n=50", out=out, seed=1)
    training("sbm:n=50", out=out, seed=3, overwrite=True)  # the first has ended
    assert "seed = 3" in (tmp_path / "out" / "config.toml").read_text()


def test_a_training_that_failed_lets_go_of_its_folder(tmp_path):
    out = str(tmp_path / "out")
    with pytest.raises(InputError) as kept:  # with its traceback, as notebooks keep the last one
        training(tmp_path / "nosuch", out=out)
    assert training("sbm:n=50", out=out)["n"] == 50 and kept is not None


@pytest.mark.parametrize("source", ["nosuch", "sbm:n=60O", "path:n=20"], ids=["no graph", "a typo", "no features"])
def test_a_training_that_does_not_begin_leaves_the_results_of_the_last_one(tmp_path, source):
    training("sbm:n=50", out=str(tmp_path / "out"))
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    for out in ("out", "new"):
        with pytest.raises(SpgnnError):
            training(source, out=str(tmp_path / out), overwrite=True)
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before and len(
        before
    ) > 5
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "env.json", "summary.json", "checkpoints/weights"])
def test_a_file_of_the_user_with_the_name_of_a_result_is_not_replaced(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"mine": true}')
    for overwrite in (False, True):
        with pytest.raises(UsageError, match=f"has {name.split('/')[0]}, but no env.json of a run"):
            training("sbm:n=50", out=str(tmp_path), overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == [name.split("/")[0]]
    assert (tmp_path / name).read_text() == '{"mine": true}'


def test_hidden_folders_of_the_user_stay_and_those_of_killed_trainings_go(tmp_path):
    training("sbm:n=50", out=str(tmp_path))
    for name in (".new-notes", ".old-12-text", ".new-12-0123456789abcdef", ".old-12-0123456789abcdef"):
        (tmp_path / name).mkdir()
    training("sbm:n=50", out=str(tmp_path), overwrite=True)
    assert sorted(path.name for path in tmp_path.glob(".*")) == [".new-notes", ".old-12-text"]


@pytest.mark.parametrize(
    "trace", ["out", "out/config.toml", "out/summary.json", "link/metrics.jsonl", "out/checkpoints/trace.json"]
)
def test_a_trace_does_not_take_the_name_of_a_result(tmp_path, trace):
    (tmp_path / "link").symlink_to("out")
    with pytest.raises(UsageError, match="trace .* is a name that out .*out needs itself"):
        training("sbm:n=50", out=str(tmp_path / "out"), trace=str(tmp_path / trace))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "spoilt, said",
    [("graph", "config.toml: graph = 5; expected a name or path"), ("manifest", "model.*family")],
)
def test_a_run_folder_that_was_spoilt_is_named(tmp_path, spoilt, said):
    training("sbm:n=50", out=str(tmp_path / "out"))
    if spoilt == "graph":
        text = (tmp_path / "out" / "config.toml").read_text()
        (tmp_path / "out" / "config.toml").write_text(text.replace('graph = "sbm:n=50"', "graph = 5"))
    else:
        for path in (tmp_path / "out" / "checkpoints").rglob("manifest.json"):
            path.write_text(json.dumps(seal(json.loads(path.read_text()) | {"model": {"arguments": {}}})))
    with pytest.raises(CheckpointError, match=said):
        predict(str(tmp_path / "out"), SelfCommunicator())
