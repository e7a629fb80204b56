"""The --out folder of a training: named, locked, begun, a line per epoch, checkpoints, the results at the end."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from .. import __version__
from ..atomic import check_not_read, read_regular, write_text
from ..config import NAMED_FILE, PARTS_FILE, RELATIONS_FILE, RUN_FILES, TrainConfig, input_files, is_of_run, to_toml
from ..data.load import is_built_in
from ..data.readers.make_graph import graph_name
from ..dist import Communicator
from ..errors import CheckpointError, ResourceError, UsageError, from_root
from ..machine import cores
from .checkpoint import finite, list_checkpoints, read_json, write_array, write_json
from .named import Names, prediction_columns, write_table

HOME = Path("runs")  # of --out auto
LONGEST = 60  # characters of the name of a graph in it
MARK = ".parts-begun"  # has the name of the parts that a training makes
PARTS_NAME = re.compile(r"parts(-[0-9]+)?")


def check_outputs(source: str, config: TrainConfig) -> None:
    """Raise UsageError if outputs would overwrite each other or inputs, or --overwrite or --resume does not fit --out."""
    if config.out in ("auto", "none"):
        raise UsageError(f"out = {config.out!r} is for the command line and spgnn.train; see folder.resolved_out")
    if config.resume and config.resume != config.out:
        raise UsageError(f"resume = {config.resume!r} must be the folder of out; use spgnn.resume(folder, comm)")
    if config.out and config.trace and is_of_run(Path(config.out), Path(config.trace)):
        raise UsageError(f"--trace {config.trace} is a name that --out {config.out} needs itself; choose another")
    inputs = {"GRAPH": source} | {f"--{name}": path for name, path in input_files(config).items()}
    inputs["--partition"] = config.partition
    if config.trace:
        check_not_read(config.trace, "--trace", inputs.values())
    for name, path in inputs.items():
        if config.out and os.path.exists(path) and is_of_run(Path(config.out), Path(path)):
            if not os.path.samefile(path, config.out):
                raise UsageError(f"{name} {path}: is a file that --out {config.out} replaces; choose another folder")
    if config.overwrite and not config.out:
        raise UsageError("--overwrite requires --out, the folder whose run is replaced")


@contextmanager
def resolved_out(source: str, config: TrainConfig, comm: Communicator) -> Iterator[TrainConfig]:
    """Yield the config with a folder as `out`: for auto a new one, removed if it is empty at the end; "" for none.

    The number is the first that is free; rank 0 makes the folder, so that no other training gets the same one.
    Raises: ResourceError where no folder can be made, UsageError for config.overwrite. Collective.
    """
    if config.out != "auto":
        yield replace(config, out="") if config.out == "none" else config
        return
    if config.overwrite:
        raise UsageError("--overwrite requires --out DIR, the folder whose run is replaced")
    out = from_root(comm, _make_folder, source)
    try:
        yield replace(config, out=out)
    finally:  # by any rank: an error on one ends the others
        _remove_empty(Path(out))
        _remove_empty(HOME)


def _make_folder(source: str) -> str:
    """Make and return runs/GRAPH-1, or the first number after it that is free."""
    name = source.partition(":")[0] if is_built_in(source) else graph_name(Path(os.path.abspath(source)))
    name = re.sub(r"[^\w.+-]+", "_", name).lstrip(".-")[:LONGEST] or "graph"
    number = 0
    try:
        HOME.mkdir(exist_ok=True)
        while True:
            number += 1
            with suppress(FileExistsError):
                (folder := HOME / f"{name}-{number}").mkdir()
                return str(folder)
    except OSError as problem:
        raise ResourceError(
            f"{HOME.absolute()}: cannot be written: {problem.strerror}; choose a folder with --out DIR, "
            "or keep nothing with --out none"
        ) from None


class RunFolder:
    """The files of a training in the folder --out, on rank 0.

    If an earlier run is there, the new files are in hidden folders until the first checkpoint, which replaces it:
    a training that ends before, for whatever reason, leaves the earlier run whole.
    """

    def __init__(self, folder: Path, is_continued: bool = False):
        self.folder, self.is_continued = folder, is_continued
        self.checkpoints = Path(os.path.realpath(folder / "checkpoints"))  # may be a link to another disk
        self.hidden = f".new-{os.getpid()}-{secrets.token_hex(8)}" if has_results(folder) and not is_continued else ""
        self.metrics: TextIO | None = None
        self.parts = ""  # name of the folder of parts that this run has made, in mode average
        self.workload: dict | None = None  # from which their number follows
        mark = folder / MARK  # of a training that was killed before env.json had the name of its parts
        with suppress(OSError, ValueError):
            name = read_regular(mark).decode()
            if PARTS_NAME.fullmatch(name) and name != _parts_of(folder):
                shutil.rmtree(folder / name, ignore_errors=True)
            mark.unlink()

    def parts_path(self) -> tuple[Path, bool]:
        """Return where the parts of this run are, or are to be made, and whether they are there.

        Parts of an earlier run, and folders of the user, are not touched: new ones get a name that is free.
        """
        named = _parts_of(self.folder)
        if self.is_continued:
            self.parts = named
            if named and (self.folder / named).is_dir():
                self.workload = _environment_of(self.folder).get("workload")
                return self.folder / named, True
        elif named and not has_results(self.folder):  # of a training that ended before its first checkpoint
            shutil.rmtree(self.folder / named, ignore_errors=True)
        names = itertools.chain(["parts"], (f"parts-{number}" for number in itertools.count(2)))
        self.parts = next(name for name in names if not os.path.lexists(self.folder / name))
        with _written(self.folder):  # until env.json has the name: after a kill the next training removes the parts
            write_text(self.folder / MARK, self.parts)
        return self.folder / self.parts, False

    def discard_parts(self) -> None:
        """Remove the parts that this training has made, unless it has begun."""
        if self.metrics is None or self.hidden:
            shutil.rmtree(self.folder / self.parts, ignore_errors=True)
            (self.folder / MARK).unlink(missing_ok=True)

    @property
    def home(self) -> Path:
        """Where files are written: the hidden folder until the first checkpoint."""
        return self.folder / self.hidden

    @property
    def new_checkpoints(self) -> Path:
        """Where checkpoints are written: the hidden folder until the first one."""
        return self.checkpoints / self.hidden

    def begin(self, source: str, config: TrainConfig, comm: Communicator, lines: Sequence[bytes] = ()) -> None:
        """Write env.json and config.toml and open metrics.jsonl, which has the lines of a run that is continued."""
        config = replace(config, overwrite=False, resume="")
        about: dict[str, Any] = {"parts": self.parts, "workload": self.workload} if self.parts else {}
        if self.is_continued:  # after so many epochs, each time
            before = _environment_of(self.folder).get("continued_after")
            about["continued_after"] = [*(before if isinstance(before, list) else []), len(lines)]
        try:
            with _written(self.folder):
                self._discard_hidden()
                write_json(self.home / "env.json", environment(comm) | about)
                write_text(self.home / "config.toml", to_toml(config, {"graph": str(source)}))
                write_text(self.home / "metrics.jsonl", b"".join(lines).decode())
                for name in (*RUN_FILES[3:], PARTS_FILE, NAMED_FILE, RELATIONS_FILE) if self.is_continued else ():
                    (self.folder / name).unlink(missing_ok=True)
                self.metrics = open(self.home / "metrics.jsonl", "a", encoding="utf-8")
                if not self.hidden:
                    (self.folder / MARK).unlink(missing_ok=True)
        except ResourceError:
            if not any(os.path.lexists(self.folder / name) for name in RUN_FILES[1:]):
                (self.folder / RUN_FILES[0]).unlink(missing_ok=True)  # so that a folder that was made for it can go
            raise

    def _discard_hidden(self) -> None:
        """Remove what killed trainings have hidden, and make the hidden folders of this one, if it has any."""
        kinds = "new|old" if self.is_continued else "new"
        for home in (self.folder, self.checkpoints):
            for stale in (*hidden(home, kinds), *hidden(home, "new", "|".join(map(re.escape, RUN_FILES)))):
                shutil.rmtree(stale) if stale.is_dir() else stale.unlink()
            if self.hidden:
                (home / self.hidden).mkdir(parents=True)

    def write_line(self, record: dict) -> None:
        """Add a line to metrics.jsonl, once the training has begun."""
        assert self.metrics is not None
        try:
            self.metrics.write(json.dumps(finite(record)) + "\n")
            self.metrics.flush()
        except OSError as problem:
            raise ResourceError(
                f"{self.folder / 'metrics.jsonl'}: cannot be written: {problem.strerror or problem}"
            ) from None

    def after_checkpoint(self) -> Path:
        """Replace an earlier run, once the new one has a checkpoint; return the folder of the next ones."""
        if self.hidden:
            self._replace()
        for home in (self.checkpoints, self.folder):
            for path in hidden(home, "old"):
                shutil.rmtree(path, ignore_errors=True)
        return self.checkpoints

    def write_results(self, summary: dict, details: dict, arrays: dict[str, np.ndarray], names: Names) -> None:
        """Write arrays by the names of their files, the table of predictions if there are names, details and summary."""
        for name, array_N in arrays.items():
            write_array(self.folder / f"{name}.npy", array_N)
        if names.has_any:
            write_table(self.folder / NAMED_FILE, prediction_columns(arrays["predictions"], names))
        if table := summary.get("per_relation"):
            write_table(
                self.folder / RELATIONS_FILE, {name: np.array([row[name] for row in table]) for name in table[0]}
            )
        write_text(self.folder / "details.json", json.dumps(details) + "\n")
        if names.classes is not None:
            named = [of | {"name": name} for of, name in zip(summary["per_class"], names.classes)]
            summary = summary | {"classes": names.classes, "per_class": named}
        write_json(self.folder / "summary.json", summary)

    def close(self) -> None:
        """Close metrics.jsonl, and remove the hidden files of a training without a checkpoint."""
        if self.metrics is not None:
            with suppress(OSError):  # of a full disk: the error that ended the training says more
                self.metrics.close()
        if self.hidden:
            for home in (self.home, self.new_checkpoints):
                shutil.rmtree(home, ignore_errors=True)

    def _replace(self) -> None:
        """Move the files of the earlier run to .old-*, weights first, then those of this run to their place, weights last.

        A kill in between leaves files of one run only, and a folder that the next training can take.
        """
        old, both = self.hidden.replace("new", "old"), (self.checkpoints, self.folder)
        weights = [path.name for path in (*list_checkpoints(self.checkpoints), *self.checkpoints.glob(".epoch-*"))]
        others = [*filter(None, [_parts_of(self.folder)]), PARTS_FILE, NAMED_FILE, RELATIONS_FILE, *reversed(RUN_FILES)]
        with _written(self.folder):
            for home, names in zip(both, ([*weights, "personal"], others)):
                (home / old).mkdir()
                for name in names:
                    if os.path.lexists(home / name):
                        (home / name).rename(home / old / name)
            for home in reversed(both):
                new = home / self.hidden
                for path in sorted(new.iterdir(), key=lambda path: [*RUN_FILES, path.name].index(path.name)):
                    path.rename(home / path.name)
                new.rmdir()
            (self.folder / MARK).unlink(missing_ok=True)
        self.hidden = ""


def hold_folder(config: TrainConfig, held: ExitStack) -> RunFolder:
    """Return the folder of results, locked against other trainings until `held` ends. On rank 0.

    Raises: UsageError where the folder has another run, unless config.overwrite, or results of something else.
    """
    folder = Path(config.out)
    _check_begun(folder, config)
    with _written(folder):
        if not folder.is_dir():
            folder.mkdir(parents=True)
            held.callback(_remove_empty, folder)
        handle = os.open(folder, os.O_RDONLY)
    held.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ResourceError(f"--out {config.out}: another training uses it; wait, or choose another folder") from None
    except OSError:  # a file system without locks
        pass
    if has_results(folder) and not config.overwrite and not config.resume:
        raise UsageError(
            f"--out {config.out}: holds another run; choose another folder, continue it with --resume {config.out}, "
            "or replace that run with --overwrite"
        )
    files = RunFolder(folder, bool(config.resume))
    held.callback(files.close)
    return files


def has_results(folder: Path) -> bool:
    """Whether the folder has weights or results of a training."""
    return bool(list_checkpoints(folder / "checkpoints")) or any(
        (folder / name).exists() for name in ("summary.json", "predictions.npy")
    )


def hidden(home: Path, kinds: str, files: str = "") -> list[Path]:
    """Return what trainings left in a folder: folders `.new-PID-HEX` or `.old-PID-HEX`, or files `.NAME.new-PID-HEX`.

    Args: kinds  pattern of new and old; files: pattern of NAME.
    """
    name = re.compile(rf"\.{f'({files}).' if files else ''}({kinds})-[0-9]+-[0-9a-f]{{16}}")
    return [
        path
        for path in home.glob(".*")
        if name.fullmatch(path.name) and (path.is_file() if files else path.is_dir() and not path.is_symlink())
    ]


def _environment_of(folder: Path) -> dict[str, Any]:
    """Return what env.json of a folder holds; {} if it is absent or damaged."""
    with suppress(CheckpointError):
        return read_json(folder / "env.json")
    return {}


def _parts_of(folder: Path) -> str:
    """Return the name of the folder of parts that the run in a folder made, "" if it made none."""
    name = _environment_of(folder).get("parts")
    return name if isinstance(name, str) and PARTS_NAME.fullmatch(name) else ""


def _check_begun(folder: Path, config: TrainConfig) -> None:
    """Raise UsageError where a folder has results, and neither env.json nor what a training was killed while it replaced."""
    there = [name for name in (*RUN_FILES, "checkpoints") if os.path.lexists(folder / name)]
    if there and not config.resume and not hidden(folder, "old") and "spgnn" not in _environment_of(folder):
        raise UsageError(f"--out {config.out}: has {there[0]}, but no env.json of a run; choose another folder")


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    """Raise ResourceError where the disk refuses what the block writes."""
    try:
        yield
    except OSError as problem:
        raise ResourceError(f"--out {folder}: {problem.strerror or problem}; choose another folder") from None


def environment(comm: Communicator) -> dict[str, Any]:
    """Return the environment of a run: versions, host, ranks."""
    return {
        "spgnn": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "ranks": comm.size,
        "communicator": repr(comm).partition("(")[0],
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
