"""A pipe, device or folder in the place of a file that is read: one line and exit code 3, at once."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from spgnn import cli

PACKAGE = Path(cli.__file__).parents[1]
KINDS = {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "folder": Path.mkdir}
# What a command is given -> (the command, the files that it reads).
READ = {
    "g": ("info {}", "manifest.json indptr.npy indices.npy labels.npy split.npy features.npy"),
    "p": (
        "check {}",
        "manifest.json owner.npy part-00000/own.npy part-00000/indptr.npy part-00001/features.npy part-00000/sums.npy "
        "part-00000/halo.npy part-00001/halo_sums.npy",
    ),
    "p ": ("train {} --mode average --epochs 1 --out none", "part-00000/halo.npy part-00001/labels.npy"),
    "p  ": ("measure {0}/../g --partition {0}", "manifest.json owner.npy"),
    "run": ("predict {}", "config.toml checkpoints/epoch-000002/model.safetensors checkpoints/epoch-000002/manifest.json"),
    "run ": ("train --resume {} --epochs 3", "config.toml env.json metrics.jsonl details.json split.npy summary.json"),
    "run  ": ("report {0} --out {0}.html", "config.toml env.json metrics.jsonl summary.json"),
    "own": ("info {0}/../g --features {0}/features.npy --labels {0}/labels.npy --split {0}/split.npy", "features.npy labels.npy split.npy"),
    "own ": ("info {0}/edges.csv", "edges.csv"),
    "own  ": ("partition {0}/edges.i32 -k 2 --memory 500MB --method dbh --out {0}/o", "edges.i32"),
    "own   ": ("measure {0}/../g --ranks 2 --simulate --machine {0}/machine.toml", "machine.toml"),
}  # fmt: skip
CASES = [(given, file) for given, (_, files) in READ.items() for file in files.split()]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    g, p, run, own = (str(folder / name) for name in ("g", "p", "run", "own"))
    assert cli.main(["convert", "sbm:n=60,seed=3", g]) == cli.main(["partition", g, "-k", "2", "--out", p]) == 0
    assert cli.main(["train", g, "--epochs", "2", "--hidden", "4", "--out", run]) == 0
    for older in Path(run, "checkpoints").glob("epoch-*1"):
        shutil.rmtree(older)
    shutil.copytree(g, own)
    return folder


@pytest.fixture
def at_once():
    """Raise in whatever waits for longer than a reader may."""

    def raise_timeout(*_):
        raise AssertionError("the command waits for a file that never ends")

    before = signal.signal(signal.SIGALRM, raise_timeout)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.parametrize("given, name", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_refused(kind, given, name, originals, tmp_path, at_once, capfd):
    shutil.copytree(originals, tmp_path / "all")
    path = tmp_path / "all" / given.strip() / name
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    words = [word.format(tmp_path / "all" / given.strip()) for word in READ[given][0].split()]
    assert cli.main(words) == 3
    said = capfd.readouterr().err
    assert said.count("spgnn: error:") == 1 and "unexpected" not in said and path.name in said


READS = re.compile(
    r"np\.load\(|open_memmap|fromfile\((?!file)|\.read_bytes\(\)|\.read_text\(|(?<![\w.])open\([^)]*\"r?b?\"|ZipFile\(path"
)
# Files that this process, or the system, made.
OWN = (
    "atomic.py", "machine.py", "cli/__init__.py", "dist/job/guard.py", "dist/job/protect.py", "spmm/kernels/cuda/launcher.py",
    "data/wordnet.py", "training/parts/scratch.py", "partition/folder/pipeline/rows.py",
    "partition/folder/pipeline/work.py", "partition/folder/pipeline/halo.py", "partition/folder/pipeline/pipeline.py",
    "partition/folder/pipeline/edge_rows.py", "data/formats.py",
)  # fmt: skip


def test_every_reader_opens_files_by_open_regular():
    found = {
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in PACKAGE.rglob("*.py")
        if str(path.relative_to(PACKAGE)) not in OWN
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if READS.search(line)
    }
    assert not sorted(found)
