"""Files and folders that appear whole or not at all: written aside, synced, renamed.

A kill leaves what was there before, and beside it a hidden `.NAME.new-*` that can go. Of a link, what it stands for is
written; a device or pipe is refused, as the rename would put a file in its place.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import ResourceError, UsageError


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """Yield an empty folder beside `final`; once the block ends well it takes final's name.

    A folder that is not empty cannot be renamed over: the old one steps aside, whole, and goes last.
    Raises: ResourceError when the disk does not take it.
    """
    final = Path(os.path.realpath(final))
    aside = _beside(final, "new")
    old = _beside(final, "old")
    try:
        aside.mkdir(parents=True)
        yield aside
        sync(aside)
        if final.exists():
            final.rename(old)
        aside.rename(final)
        sync(final.parent)
    except OSError as error:
        raise ResourceError(f"{final}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if final.exists():
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def new_file(final: Path) -> Iterator[Path]:
    """Yield a path beside `final` to write; once the block ends well the file takes final's name.

    Raises: ResourceError when the disk does not take it, UsageError where something else than a file stands there.
    """
    check_file(final)
    final = Path(os.path.realpath(final))
    aside = _beside(final, "new").with_suffix(final.suffix)
    try:
        yield aside
        sync(aside)
        os.replace(aside, final)
    except OSError as error:
        raise ResourceError(f"{final}: cannot be written: {error.strerror or error}") from error
    finally:
        aside.unlink(missing_ok=True)


def check_file(path: Path) -> None:
    """Raise UsageError where something else than a file stands, such as a folder or a device."""
    if path.exists() and not path.is_file():
        raise UsageError(
            f"{path}: is {'a folder' if path.is_dir() else 'no regular file'}; expected the name of a file"
        )


def sync(path: Path) -> None:
    """Wait until the disk has a file, or the entries of a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _beside(final: Path, what: str) -> Path:
    return final.with_name(f".{final.name}.{what}-{os.getpid()}-{secrets.token_hex(4)}")
