"""A pipeline that was stopped anywhere is taken up by the same call, and what is half done can never be loaded."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from edited_parts import files_of

from spgnn.errors import PartitionError, ResourceError
from spgnn.partition import PartitionFolder, load_partition, part_to_folder
from spgnn.partition.folder.pipeline import work
from spgnn.partition.folder.pipeline.work import WorkFolder

ROOT = Path(__file__).resolve().parents[2]


class Stop(BaseException):
    """What stands for a kill: no handler of the pipeline sees it."""


@pytest.fixture
def edges(tmp_path):
    np.random.default_rng(0).integers(0, 70, (300, 2)).astype(np.int32).tofile(tmp_path / "e.bin")
    np.savetxt(tmp_path / "e.txt", np.fromfile(tmp_path / "e.bin", np.int32).reshape(-1, 2), fmt="%d")
    np.save(tmp_path / "X.npy", np.random.default_rng(1).normal(size=(70, 3)))
    np.save(tmp_path / "attr.npy", np.random.default_rng(2).normal(size=(300, 2)))
    return tmp_path


def run(folder: Path, out: str = "parts", **more) -> dict:
    usual = {"source": folder / "e.txt", "k": 3, "memory": "16GB", "hops": 2, "features": folder / "X.npy"}
    return part_to_folder(out=folder / out, **usual | more)


@pytest.mark.slow
@pytest.mark.parametrize("has_attributes", [False, True])
def test_stopped_after_any_stage_or_any_write_it_goes_on_to_the_same_files(edges, monkeypatch, has_attributes):
    more = {"edge_features": edges / "attr.npy", "antisymmetric": [1]} if has_attributes else {}
    run(edges, "whole", **more)
    expected = files_of(edges / "whole")
    stops = {
        "after a stage": (work, "_write"),
        "at a write": (work.NpyFile, "finish"),
        "before a rename": (Path, "rename"),
    }
    for where, (owner, name) in stops.items():
        function, counts = getattr(owner, name), []
        for stop_at in range(0, 1000, 1 if name == "rename" else 2):
            seen = iter(range(stop_at + 1))

            def stopping(*args, **kwargs):
                if next(seen, None) is None:
                    raise Stop
                return function(*args, **kwargs)

            with monkeypatch.context() as patch:
                patch.setattr(owner, name, stopping)
                try:
                    run(edges, **more)
                    break
                except Stop:
                    counts.append(stop_at)
            assert not PartitionFolder(edges / "parts").is_valid or where == "before a rename"
            assert run(edges, **more)["k"] == 3
            assert files_of(edges / "parts") == expected, f"{where} {stop_at}"
            assert not (edges / ".parts.partial").exists()
            shutil.rmtree(edges / "parts")
        assert len(counts) >= 3, where
        shutil.rmtree(edges / "parts")


def stopped_at(folder: Path, monkeypatch, method: str, **more) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, method, lambda self: (_ for _ in ()).throw(Stop))
        with pytest.raises(Stop):
            run(folder, **more)


def test_a_partition_that_is_replaced_stands_until_the_new_one_is_whole(edges, monkeypatch):
    run(edges, k=2)
    before = files_of(edges / "parts")
    stopped_at(edges, monkeypatch, "publish")
    assert files_of(edges / "parts") == before
    notes = []
    assert run(edges, note=notes.append)["k"] == 3 and "continuing" in notes[0]
    assert load_partition(edges / "parts").k == 3


@pytest.mark.parametrize("meanwhile", ["nothing", "removed", "replaced"])
def test_after_a_kill_behind_the_last_rename_the_folder_is_there_and_is_that_of_the_run(edges, monkeypatch, meanwhile):
    stopped_at(edges, monkeypatch, "discard")
    expected = files_of(edges / "parts")
    if meanwhile != "nothing":
        shutil.rmtree(edges / "parts")
    if meanwhile == "replaced":
        run(edges, "other", k=2)
        (edges / "other").rename(edges / "parts")
    notes = []
    assert run(edges, note=notes.append)["k"] == 3
    assert files_of(edges / "parts") == expected
    assert not (edges / ".parts.partial").exists()
    assert ("continuing" if meanwhile == "nothing" else "are gone") in notes[0]


@pytest.mark.parametrize("change", ["seed", "edges file", "features file"])
def test_other_parameters_or_files_start_anew_and_say_so(edges, monkeypatch, change):
    stopped_at(edges, monkeypatch, "publish")
    if change != "seed":
        os.utime(edges / ("e.txt" if change == "edges file" else "X.npy"), (1, 1))
    notes = []
    run(edges, note=notes.append, seed=int(change == "seed"))
    word = {"seed": "seed", "edges file": "source", "features file": "features"}[change]
    assert notes == [f"starting again: the interrupted run had another {word}"]


def test_an_array_as_an_option_is_told_from_one_that_looks_alike(edges, monkeypatch):
    degrees = np.ones((2, 2000), np.int64)
    degrees[1, 1000] = 2
    assert repr(degrees[0]) == repr(degrees[1])
    usual = {"source": edges / "e.bin", "features": None, "n_nodes": 2000, "threshold": 1.0}
    stopped_at(edges, monkeypatch, "publish", degrees=degrees[0], **usual)
    notes = []
    run(edges, note=notes.append, degrees=degrees[1], **usual)
    assert notes == ["starting again: the interrupted run had another options"]
    stopped_at(edges, monkeypatch, "publish", degrees=degrees[1], **usual)
    run(edges, note=notes.append, degrees=degrees[1].copy(), **usual)
    assert notes[1:] == ["continuing the interrupted run"]


def test_two_at_once_are_one_too_many(edges):
    with WorkFolder(edges / "parts", {"a": 1}), pytest.raises(ResourceError, match="another process is writing it"):
        run(edges)


def test_a_stream_that_changes_between_passes_is_refused(edges):
    other = np.fromfile(edges / "e.bin", np.int32)[::-1].copy()

    def change(name, done, total):
        if name == "degrees" and done == total:
            other.tofile(edges / "e.bin")

    with pytest.raises(PartitionError, match="changed between passes"):
        run(edges, source=edges / "e.bin", progress=change)
    assert not list(edges.glob("*parts*"))


def test_a_disk_too_small_is_seen_before_it_is_full(edges, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: namedtuple("usage", "free")(1000))
    with pytest.raises(ResourceError, match=r"0 MB are free; \d+ nonzeros 8 bytes each"):
        run(edges)
    assert not list(edges.glob("*parts*"))


def test_a_full_disk_leaves_nothing(edges, monkeypatch):
    finish, left = work.NpyFile.finish, iter(range(9))

    def full(self):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return finish(self)

    monkeypatch.setattr(work.NpyFile, "finish", full)
    with pytest.raises(ResourceError, match="No space left on device; the files written so far were removed"):
        run(edges)
    assert not list(edges.glob("*parts*"))


def command(folder: Path, out: str = "parts") -> list[str]:
    words = [
        "partition", folder / "e.bin", "-k", 8, "--features", folder / "X.npy", "--memory", "250MB", "--hops", 2,
        "--out", folder / out, "--json",
    ]  # fmt: skip
    return [sys.executable, "-m", "spgnn", *map(str, words)]


@pytest.fixture
def larger(tmp_path):
    rng = np.random.default_rng(0)
    (rng.random((200_000, 2)) ** 2 * 9000).astype(np.int32).tofile(tmp_path / "e.bin")
    np.save(tmp_path / "X.npy", rng.normal(size=(9000, 32)).astype(np.float32))
    return tmp_path


ENV = os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.mark.slow
def test_after_a_kill_the_same_command_writes_the_same_files(larger):
    report = json.loads(subprocess.run(command(larger, "whole"), env=ENV, check=True, capture_output=True).stdout)
    assert {"k", "n", "nnz", "method", "total_rows", "edge_cut", "replication_factor", "seconds", "peak_rss_mb"} <= set(
        report
    )
    assert report["peak_rss_mb"] <= 250
    expected = files_of(larger / "whole")
    stages = len(list(larger.rglob("whole/part-*"))) + 7
    for share in random.Random(0).sample(range(stages), 3):
        process = subprocess.Popen(command(larger), env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(list(larger.glob(".parts.partial/done/*.json"))) <= share:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (larger / "parts").exists() or files_of(larger / "parts") == expected
        subprocess.run(command(larger), env=ENV, check=True, capture_output=True)
        assert files_of(larger / "parts") == expected
        assert not [path.name for path in larger.iterdir() if path.name.startswith(".")]
        shutil.rmtree(larger / "parts")
