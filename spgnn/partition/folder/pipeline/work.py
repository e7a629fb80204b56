"""WorkFolder: a hidden folder in which stages are done one after another; a killed run continues from it. NpyFile grows.

.NAME.partial/   lock, key.json, done/STAGE.json, files that stages leave for later ones, and
    new/         what becomes NAME by one rename, once all stages are done
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ....atomic import read_regular, sync, write_text
from ....errors import ResourceError


class WorkFolder:
    """The stages of one folder: `with WorkFolder(final, key) as work: record = work.stage("name", function)`.

    Args: final  the folder, which appears whole or not at all.
          key    everything that the result depends on: work with another key is discarded.
    Raises: ResourceError if another process works on the same folder, or it cannot be written.
    """

    def __init__(self, final: Path, key: dict, note: Callable[[str], None] | None = None):
        self.final = final
        self.folder = final.with_name(f".{final.name}.partial")
        self.new = self.folder / "new"
        self.note = note or (lambda message: None)
        self._key = json.loads(json.dumps(key))

    def __enter__(self) -> WorkFolder:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ResourceError(f"{self.final}: another process is writing it; wait, or choose another --out") from None
        except OSError as error:
            raise ResourceError(f"{self.folder}: cannot be written: {error.strerror or error}") from None
        found = _read(self.folder / "key.json")
        is_lost = not self.new.exists() and self.record("publish") != _identity(self.final)
        if found != self._key or is_lost:
            others = [name for name in os.listdir(self.folder) if name != "lock"]
            if found == self._key:
                self.note("starting again: the files of the interrupted run are gone")
            elif found is not None:
                changed = [name for name in self._key if found.get(name) != self._key[name]]
                self.note(f"starting again: the interrupted run had another {' and '.join(changed) or 'version'}")
            for name in others:
                _remove(self.folder / name)
            (self.folder / "done").mkdir()
            self.new.mkdir()
            _write(self.folder / "key.json", self._key)
        elif any((self.folder / "done").iterdir()):
            self.note("continuing the interrupted run")
        return self

    def __exit__(self, *_) -> None:
        os.close(self._lock)

    def record(self, name: str) -> dict | None:
        """Return the record of a stage, or None if it is not done."""
        return _read(self.folder / "done" / f"{name}.json")

    def stage(self, name: str, function: Callable[[], dict | None]) -> dict:
        """Return the record of a stage, which is run unless it was done before; it must sync its files before it returns."""
        record = self.record(name)
        if record is None:
            record = function() or {}
            _write(self.folder / "done" / f"{name}.json", record)
        return record

    def drop(self, *patterns: str) -> None:
        """Remove files that no later stage reads."""
        for pattern in patterns:
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)

    def publish(self) -> None:
        """Rename the new folder to its final name; a folder that it replaces is removed last."""
        old = self.folder / "old"
        if self.new.exists():  # otherwise it was renamed before a kill
            if self.final.exists():
                _remove(old)
                self.final.rename(old)
            _write(self.folder / "done" / "publish.json", _identity(self.new))
            self.new.rename(self.final)
            sync(self.final.parent)
        self.discard()

    def discard(self) -> None:
        """Remove all work."""
        # The key is removed first: after a kill in here nothing claims the rest.
        (self.folder / "key.json").unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _read(path: Path) -> dict | None:
    try:
        value = json.loads(read_regular(path))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _identity(folder: Path) -> dict:
    """Return what identifies a folder, even renamed."""
    found = folder.stat() if folder.exists() else None
    return {"folder": found and [found.st_ino, found.st_mtime_ns]}


def _write(path: Path, value: dict) -> None:
    write_text(path, json.dumps(value))
    sync(path.parent)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class NpyFile:
    """A .npy to which rows are appended; no handle stays open, so thousands are possible.

    Args: tail  shape of a row, () for a vector.
    """

    def __init__(self, path: Path, dtype, tail: tuple[int, ...] = ()):
        self.path, self.dtype, self.tail, self.rows = path, np.dtype(dtype), tuple(tail), 0
        path.write_bytes(self._header())

    def append(self, rows: np.ndarray) -> None:
        """Append (m, *tail) of this dtype."""
        if len(rows):
            assert rows.dtype == self.dtype and rows.shape[1:] == self.tail, "the rows have another dtype or shape"
            with open(self.path, "ab") as file:
                file.write(np.ascontiguousarray(rows).data.cast("B") if rows.size else b"")
            self.rows += len(rows)

    def finish(self) -> None:
        """Write the number of rows and wait for the disk."""
        with open(self.path, "r+b") as file:
            file.write(self._header())
        sync(self.path)

    def _header(self) -> bytes:
        # NumPy pads the header for a growing first axis: its length does not depend on the number of rows.
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            file, {"descr": self.dtype.str, "fortran_order": False, "shape": (self.rows, *self.tail)}
        )
        return file.getvalue()


def write_npy(path: Path, values: np.ndarray, dtype=None) -> None:
    """Write an array and wait for the disk."""
    file = NpyFile(path, dtype or values.dtype, values.shape[1:])
    file.append(values)
    file.finish()


def header_bytes(path: Path) -> int:
    """Return the offset of the values of a .npy."""
    with open(path, "rb") as file:
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        return file.tell()


def read_slice(path: Path, dtype, start: int, count: int, offset: int | None = None) -> np.ndarray:
    """Return `count` values from number `start` of a vector in a .npy, read, not mapped: mapped pages would count as memory of this process.

    Args: offset  header_bytes(path), if already known.
    """
    dtype = np.dtype(dtype)
    return np.fromfile(
        path, dtype, count, offset=(header_bytes(path) if offset is None else offset) + start * dtype.itemsize
    )
