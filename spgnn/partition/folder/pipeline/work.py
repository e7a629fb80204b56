"""Work: a folder aside in which stages are done one after another, and that a killed run takes up again.

.NAME.partial/   lock, key.json, done/STAGE.json, what stages keep for each other, and
    new/         what becomes NAME by one rename, once all stages are done
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ....atomic import sync, write_text
from ....errors import ResourceError


class Work:
    """The stages of one folder: `with Work(final, key) as work: record = work.stage("name", function)`.

    Args: final  what appears whole, or not at all.
          key    everything that the result depends on: work of another key is thrown away.
    Raises: ResourceError where another process works on the same folder, or the disk refuses.
    """

    def __init__(self, final: Path, key: dict, note: Callable[[str], None] | None = None):
        self.final = final
        self.folder = final.with_name(f".{final.name}.partial")
        self.new = self.folder / "new"
        self.note = note or (lambda message: None)
        self._key = json.loads(json.dumps(key))

    def __enter__(self) -> Work:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ResourceError(
                f"{self.final}: another process is writing it; wait for it, or choose another --out"
            ) from None
        except OSError as error:
            raise ResourceError(f"{self.folder}: cannot be written: {error.strerror or error}") from None
        found = _read(self.folder / "key.json")
        is_lost = not self.new.exists() and self.record("publish") != _identity(self.final)
        if found != self._key or is_lost:
            others = [name for name in os.listdir(self.folder) if name != "lock"]
            if found == self._key:
                self.note("starting anew: what the run that was interrupted had written is no longer there")
            elif found is not None:
                changed = [name for name in self._key if found.get(name) != self._key[name]]
                self.note(
                    f"starting anew: the run that was interrupted had another {' and '.join(changed) or 'version'}"
                )
            for name in others:
                _remove(self.folder / name)
            (self.folder / "done").mkdir()
            self.new.mkdir()
            _write(self.folder / "key.json", self._key)
        elif any((self.folder / "done").iterdir()):
            self.note("going on where the run before was interrupted")
        return self

    def __exit__(self, *_) -> None:
        os.close(self._lock)

    def record(self, name: str) -> dict | None:
        """Return what a stage left, or None where it is not done."""
        return _read(self.folder / "done" / f"{name}.json")

    def stage(self, name: str, function: Callable[[], dict | None]) -> dict:
        """Return the record of a stage, which runs unless it was done before; its files must be synced when it returns."""
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
        """Give the new folder its name; the one that stood there goes last."""
        old = self.folder / "old"
        if self.new.exists():  # else it was renamed before a kill
            if self.final.exists():
                _remove(old)
                self.final.rename(old)
            _write(self.folder / "done" / "publish.json", _identity(self.new))
            self.new.rename(self.final)
            sync(self.final.parent)
        self.discard()

    def discard(self) -> None:
        """Remove all work."""
        # The key goes first: what is left after a kill in here is of no run.
        (self.folder / "key.json").unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _read(path: Path) -> dict | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _identity(folder: Path) -> dict:
    """Return what a folder keeps when it is renamed, and another at its place has not."""
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
