"""Files and folders that appear whole or not at all: written under a temporary name, synced, renamed.

A kill leaves what was there before, and next to it a hidden `.NAME.new-*`, which the next writer of NAME on this host
removes. Only where an option named a file is a link followed; a link at any other name is replaced itself, so nothing
outside of the folder is written over. A device or pipe is refused, because the rename would put a file there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from .errors import ResourceError, UsageError
from .machine import host_id

PLANETOID = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")  # files that their common prefix names
LOCK = ".lock"  # in temporary folders


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """Yield an empty folder next to `final`, which takes final's name when the block ends without an error.

    A folder that is not empty cannot be renamed over: the old one is renamed first and removed last.
    Raises: ResourceError if the disk refuses it.
    """
    final = _without_links(final)
    new = _temporary(final, "new")
    old = _temporary(final, "old")
    handle = -1
    try:
        new.mkdir(parents=True)
        handle = os.open(new, os.O_RDONLY)
        _lock(handle)
        _remove_left(final)
        yield new
        sync(new)
        if final.is_symlink():
            final.unlink()
        elif final.exists():
            final.rename(old)
        new.rename(final)
        sync(final.parent)
    except OSError as error:
        raise _refused(final, error) from error
    finally:
        if handle >= 0:
            os.close(handle)
        shutil.rmtree(new, ignore_errors=True)
        if final.exists():
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def new_file(final: Path, option: str = "") -> Iterator[BinaryIO]:
    """Yield a file open for writing bytes, which takes final's name when the block ends without an error.

    The file is created under a secret name and never opened by name again, so that nothing else can be written over.
    Args:   option  that named the file, for messages; a link at final is then followed.
    Raises: ResourceError if the disk refuses it, UsageError if final is something else than a file.
    """
    named, final = final, Path(os.path.realpath(final)) if option else _without_links(final)
    if not final.is_symlink():
        check_file(named, option)
    new = _temporary(final, "new")
    is_made = False
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), "wb") as file:
            is_made = True
            _lock(file.fileno())
            _remove_left(final)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, final)
    except OSError as error:
        raise _refused(named, error, option) from error
    finally:
        if is_made:
            with suppress(OSError):  # renamed, or on a disk that says more in the error that is on its way
                new.unlink()


def write_text(path: Path, text: str, option: str = "") -> Path:
    """Write a text file in UTF-8, whole or not at all, and return its path."""
    with new_file(path, option) as file:
        file.write(text.encode())
    return path


def check_file(path: Path, option: str = "") -> None:
    """Raise UsageError if path is something else than a file, such as a folder or a device."""
    if os.path.exists(path) and not os.path.isfile(path):
        kind = "a folder" if os.path.isdir(path) else "no regular file"
        raise UsageError(f"{_named(path, option)}: is {kind}; expected the name of a file")


def check_replaceable(folder: Path, names: tuple[str, ...]) -> None:
    """Raise UsageError if a folder that is going to be replaced has files besides those of these patterns and hidden ones."""
    for entry in sorted(folder.iterdir()):
        if not entry.name.startswith(".") and not any(fnmatchcase(entry.name, name) for name in names):
            raise UsageError(f"{folder}: is not replaced: {entry.name} would be lost; move it, or name another folder")


def open_regular(path: str | Path) -> BufferedReader:
    """Open a file for reading bytes: the only door of every reader. No pipe or device, which could be read for ever.

    Checks the open file, not its path. Pipes are opened without blocking.
    Raises: OSError, also for a folder.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("it is a pipe or device; expected a file")
    return file


def read_regular(path: str | Path) -> bytes:
    """Return the content of a file. Raises: OSError, see `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def check_writable(path: Path, option: str) -> None:
    """Raise unless a file can be written: hours of work before it is, not after.

    Raises: UsageError if path is something else than a file, ResourceError if its folder is absent or read-only.
    """
    check_file(path, option)
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        reason = "the folder cannot be written" if os.path.isdir(folder) else "no such folder"
        raise ResourceError(f"{option} {path}: {reason}; choose a file in a folder that can be written")


def check_not_read(path: str | Path, option: str, inputs: Iterable[str | Path]) -> None:
    """Raise UsageError if a file that a command writes is one that it reads, or in a folder that it reads.

    Args: inputs  files, folders and common prefixes of files, as a user gave them; "" is none.
    """
    target = Path(os.path.realpath(path))
    for given in filter(None, inputs):
        source = Path(os.path.realpath(given))
        is_there = os.path.exists(source)
        is_in = is_there and source in (target, *target.parents)
        is_of_prefix = not is_there and str(target) in (f"{source}.{ending}" for ending in PLANETOID)
        if is_in or is_of_prefix:
            where = f"is in {given}" if source.is_dir() else f"is {given}" if is_in else f"is of {given}"
            raise UsageError(f"{option} {path}: {where}, which is an input; choose another place")


class TemporaryFolder:
    """A new folder PREFIX* in `home` that this process holds until `remove`; those that killed processes left are removed.

    The file .lock in it names the host and is locked, which ends with the process. Folders of other hosts are left alone, as
    are all where the file system has no locks.
    Raises: OSError if the disk refuses it.
    """

    def __init__(self, prefix: str, home: str | Path = ""):
        home = Path(home or tempfile.gettempdir()).absolute()
        for stale in home.glob(f"{prefix}*"):
            _remove_stale(stale)
        new = Path(tempfile.mkdtemp(prefix=f".new-{prefix}", dir=home))
        self._handle = os.open(new / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(self._handle, host_id().encode())
        _lock(self._handle)
        self.path = home / new.name.removeprefix(".new-")
        new.rename(self.path)  # under this name only with its lock

    def remove(self) -> None:
        """Remove the folder and what is in it; a second time, nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _remove_stale(folder: Path) -> None:
    """Remove a TemporaryFolder whose process, on this host, has ended."""
    with suppress(OSError):  # of another user, without a lock, or just removed
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if os.read(handle, 1000) == host_id().encode():
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)


def sync(path: Path) -> None:
    """Wait until the disk has a file, or the entries of a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _without_links(final: Path) -> Path:
    """Return the absolute path of what may itself be a link, in a folder without links."""
    return Path(os.path.realpath(final.parent), final.name)


def _lock(handle: int) -> None:
    """Lock a file or folder that this process writes, where the file system has locks."""
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_left(final: Path) -> None:
    """Remove what killed processes of this host left of a file or folder: nobody has the lock.

    The number of a process may be another's by now, so that counts for a minute alone, until a writer has its lock.
    What was renamed out of the way stays where nothing has taken its place.
    """
    kinds = "new|old" if os.path.lexists(final) else "new"
    name = re.compile(rf"\.{re.escape(final.name)}\.(?:{kinds})-([0-9]+)-{_host()}[0-9a-f]{{8}}")
    found = []
    with suppress(OSError), os.scandir(final.parent) as entries:  # a folder that may be written, but not listed
        found = [(name.fullmatch(entry.name), entry) for entry in entries]
    for match, entry in found:
        with suppress(OSError):  # of another user, or just removed
            if match is None or entry.is_symlink():
                continue
            if os.path.exists(f"/proc/{match[1]}") and time.time() - entry.stat().st_mtime < 60:
                continue
            handle = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path) if entry.is_dir() else os.unlink(entry.path)
            finally:
                os.close(handle)


def _temporary(final: Path, what: str) -> Path:
    return final.with_name(f".{final.name}.{what}-{os.getpid()}-{_host()}{secrets.token_hex(4)}")


def _host() -> str:
    """Return what names this host in temporary names: locks of other hosts may not be seen here."""
    return hashlib.sha256(host_id().encode()).hexdigest()[:8]


def _refused(path: Path, error: OSError, option: str = "") -> ResourceError:
    return ResourceError(f"{_named(path, option)}: cannot be written: {error.strerror or error}")


def _named(path: Path, option: str) -> str:
    return f"{option} {path}" if option else str(path)


def finite(value):
    """Return the value with NaN and infinities as None, which JSON can say."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and value - value != 0 else value
