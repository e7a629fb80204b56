"""Files and folders appear whole or not at all, and nothing else is written over."""

import fcntl
import os
import secrets
import stat
import subprocess
import sys
from contextlib import nullcontext

import pytest

from spgnn import atomic
from spgnn.atomic import TemporaryFolder, check_not_read, check_writable, new_file, new_folder, write_text
from spgnn.errors import ResourceError, UsageError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_takes_its_name_when_the_block_ends_well(tmp_path):
    for text in ("one", "two"):
        with new_folder(tmp_path / "out") as new:
            (new / "a").write_text(text)
    assert names(tmp_path) == ["out"] and (tmp_path / "out" / "a").read_text() == "two"


def test_a_block_that_fails_leaves_what_was_there(tmp_path):
    with new_folder(tmp_path / "out") as new:
        (new / "a").write_text("one")
    with pytest.raises(ValueError), new_folder(tmp_path / "out") as new:
        (new / "b").write_text("half")
        raise ValueError
    write_text(tmp_path / "f.txt", "one")
    with pytest.raises(ValueError), new_file(tmp_path / "f.txt") as file:
        file.write(b"half")
        raise ValueError
    assert names(tmp_path) == ["f.txt", "out"] and names(tmp_path / "out") == ["a"]
    assert (tmp_path / "f.txt").read_text() == "one"


@pytest.mark.parametrize("name", ["x.html", "env", ".env", "a.tar.gz"])
def test_a_file_replaces_the_old_one_and_touches_no_other(tmp_path, name):
    others = {f".{name}", f".{name}.html", f".{name}.{name}", f"{name}.new"} - {name}
    for other in others:
        (tmp_path / other).write_text("SECRET")
    for text in ("one", "two"):
        with new_file(tmp_path / name) as file:
            file.write(text.encode())
            temporary = set(names(tmp_path)) - others - {name}
            assert len(temporary) == 1 and temporary.pop().startswith(f".{name}.new-{os.getpid()}-")
    assert set(names(tmp_path)) == others | {name} and (tmp_path / name).read_text() == "two"
    assert all((tmp_path / other).read_text() == "SECRET" for other in others)


def test_a_link_or_file_at_the_temporary_name_is_never_written_through(tmp_path, monkeypatch):
    monkeypatch.setattr(secrets, "token_hex", lambda n: "guessed")
    (tmp_path / "victim").write_text("SECRET")
    taken = tmp_path / f".x.html.new-{os.getpid()}-{atomic._host()}guessed"
    for make in (taken.symlink_to, taken.hardlink_to):
        make(tmp_path / "victim")
        with pytest.raises(ResourceError, match="out .*x.html: cannot be written: File exists"):
            write_text(tmp_path / "x.html", "<html>", "out")
        assert (tmp_path / "victim").read_text() == "SECRET" and names(tmp_path) == [taken.name, "victim"]
        taken.unlink()


def test_a_file_that_is_replaced_while_it_is_written_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("SECRET")
    with new_file(tmp_path / "x") as file:
        temporary = next(path for path in tmp_path.iterdir() if path.name.startswith(".x.new-"))
        temporary.unlink()
        temporary.symlink_to(tmp_path / "victim")
        file.write(b"page")
    assert (tmp_path / "victim").read_text() == "SECRET"


def test_a_link_is_followed_only_where_an_option_named_it(tmp_path):
    (tmp_path / "to").write_text("one")
    (tmp_path / "link").symlink_to("to")
    write_text(tmp_path / "link", "two", "--out")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "to").read_text() == "two"
    write_text(tmp_path / "link", "three")
    assert not (tmp_path / "link").is_symlink() and (tmp_path / "to").read_text() == "two"


def test_a_folder_takes_the_place_of_a_link_and_leaves_what_it_points_to(tmp_path):
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "kept").write_text("one")
    (tmp_path / "link").symlink_to("to")
    with new_folder(tmp_path / "link") as new:
        (new / "other").write_text("two")
    assert names(tmp_path) == ["link", "to"] and not (tmp_path / "link").is_symlink()
    assert names(tmp_path / "to") == ["kept"] and names(tmp_path / "link") == ["other"]


def test_two_writers_at_once_leave_the_whole_file_of_one_of_them(tmp_path):
    write = "import sys; from pathlib import Path; from spgnn.atomic import write_text\n"
    write += "for _ in range(200): write_text(Path(sys.argv[1]), sys.argv[2] * 100_000)"
    path = tmp_path / "shared"
    writers = [subprocess.Popen([sys.executable, "-c", write, str(path), letter]) for letter in "ab"]
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            text = path.read_text()
            assert len(text) == 100_000 and len(set(text)) == 1
    assert [writer.returncode for writer in writers] == [0, 0] and names(tmp_path) == ["shared"]


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_the_mode_of_a_file_is_what_the_umask_leaves(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_text(tmp_path / "f", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == mode


def test_a_place_that_cannot_be_written_is_a_resource_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="cannot be written"), new_folder(tmp_path / "file" / "out"):
        pass
    with pytest.raises(ResourceError, match="out .*no/x: cannot be written: No such file or directory"):
        write_text(tmp_path / "no" / "x", "text", "out")
    with pytest.raises(ResourceError, match="out .*no/x: no such folder; choose a file in a folder that can be"):
        check_writable(tmp_path / "no" / "x", "out")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(ResourceError, match="trace .*x.json: the folder cannot be written; choose a file"):
        check_writable(tmp_path / "x.json", "trace")


@pytest.mark.parametrize("write", [write_text, lambda path, _, option: check_writable(path, option)])
def test_a_folder_or_device_is_no_place_for_a_file(tmp_path, write):
    with pytest.raises(UsageError, match="out .*: is a folder; expected the name of a file"):
        write(tmp_path, "text", "out")
    with pytest.raises(UsageError, match="out /dev/null: is no regular file; expected the name of a file"):
        write("/dev/null", "text", "out")


@pytest.mark.parametrize("inputs, path, said", [
    ("g", "g/labels.npy", "is in .*g, which is an input"), ("g", "g", "is .*g, which"), ("link", "g/new.json", "is in .*link"),
    ("g", "link/labels.npy", "is in .*g"), ("edges.txt", "edges.txt", "is .*edges.txt"), ("ind.cora", "ind.cora.x", "is of .*ind.cora"),
    ("g", "other.json", ""), ("edges.txt", "edges.txt.json", ""), ("wordnet", "wordnet.json", ""), ("", "other.json", ""), ("g", "g2", ""),
])  # fmt: skip
def test_an_input_is_no_output(tmp_path, inputs, path, said):
    (tmp_path / "g").mkdir()
    (tmp_path / "link").symlink_to("g")
    (tmp_path / "edges.txt").write_text("0 1\n")
    given = [str(tmp_path / name) if name else "" for name in (inputs, "")]
    refused = pytest.raises(UsageError, match=f"^trace .*{path}: {said}.*; choose another place")
    with refused if said else nullcontext():
        check_not_read(tmp_path / path, "trace", given)


KILLED = """
import os, signal, sys
from spgnn.atomic import TemporaryFolder
for _ in range(2):
    folder = TemporaryFolder(".mine-", sys.argv[1])
    (folder.path / "rows").write_text("1")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_temporary_folders_of_killed_processes_are_removed_and_those_in_use_are_not(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert len(names(tmp_path)) == 2
    (tmp_path / ".mine-of-a-user").mkdir()
    (tmp_path / ".mine-elsewhere").mkdir()
    (tmp_path / ".mine-elsewhere" / ".lock").write_text("another host")
    first, second = TemporaryFolder(".mine-", tmp_path), TemporaryFolder(".mine-", str(tmp_path))
    left = {first.path.name, second.path.name, ".mine-of-a-user", ".mine-elsewhere"}
    assert set(names(tmp_path)) == left and first.path.parent == tmp_path
    first.remove(), first.remove()
    second.remove()
    assert set(names(tmp_path)) == {".mine-of-a-user", ".mine-elsewhere"}


@pytest.mark.parametrize("kind", ["new", "old"])
@pytest.mark.parametrize("make", [new_folder, new_file])
def test_what_a_killed_process_left_goes_and_what_a_live_one_writes_stays(tmp_path, make, kind):
    gone = subprocess.Popen(["true"])
    gone.wait()
    ids, end = (gone.pid, os.getpid()), f"{atomic._host()}{'0' * 8}"
    left = [tmp_path / f".{name}.{kind}-{pid}-{end}" for name in ("out", "out2") for pid in ids]
    for path in left:
        path.mkdir() if make is new_folder else path.write_text("half")
    locked = os.open(left[0], os.O_RDONLY)
    fcntl.flock(locked, fcntl.LOCK_EX)
    for is_locked in (True, False):  # at the second writer something is at `out`: what was renamed away goes too
        with make(tmp_path / "out"):
            pass
        assert [path for path in left if path.exists()] == (left if is_locked else left[1:])
        if is_locked:
            os.close(locked)
    os.utime(left[1], (0, 0))  # the number of a process that is alive, but not a new writer's
    with make(tmp_path / "out"):
        assert [path for path in left if path.exists()] == left[2:]


def test_an_old_folder_that_nothing_replaced_stays(tmp_path):
    old = tmp_path / f".out.old-999999999-{atomic._host()}{'0' * 8}"
    old.mkdir()
    with new_folder(tmp_path / "out"):
        assert old.exists()


@pytest.mark.parametrize("make", [new_folder, new_file])
def test_what_is_being_written_for_long_stays(tmp_path, make):
    with make(tmp_path / "out"):
        (long,) = tmp_path.iterdir()
        os.utime(long, (0, 0))
        with make(tmp_path / "out"):
            assert long.exists()
