"""Disk full at every write, limits of files, read-only folders: exit code 4, and what was there before is there after."""

import os
import random
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

from attack import FAST, GRAPH, NotRun, folder, here, limit, need, spgnn, tree

QUICK, FULL = 1, 40  # places at which the disk is full, for each command
TRAIN = ["train", "g", *FAST, "--checkpoint-every", "0"]
COMMANDS = {  # name -> (command, what it writes)
    "convert": (["convert", GRAPH, "h"], "h"),
    "partition": ("partition g -k 3 --out p".split(), "p"),
    "pipeline": ("partition e.txt -k 3 --memory 2GB --method spring+ --out q".split(), "q"),
    "report": ("report run --out page.html".split(), "page.html"),
    "predict": ("predict run --out pred.npy".split(), "pred.npy"),
    "train": ([*TRAIN, "--epochs", "4", "--out", "run", "--overwrite"], "run"),
    "resume": ("train --resume run --epochs 9".split(), "run"),
    "average": ("train p --mode average --epochs 4 --out avg --overwrite".split() + FAST, "avg"),
}


def attack(seed: int, amount: int):
    """Let each command write to a disk that is full after some bytes; return how often, and what was lost or went on."""
    dice, failures, counts = random.Random(seed), [], {"limits of files": 0, "full disks": 0, "read-only folders": 0}
    with folder() as home:
        write_inputs(home / "own")
        for name, (words, out) in COMMANDS.items():
            sizes = sizes_of(home, words, out)
            for bound in dice.sample(sizes, min(amount, len(sizes))):
                counts["limits of files"] += 1
                failures += tried(home, f"{name}, files of {bound} bytes", words, out, [(limit, {"FSIZE": bound})])
        try:
            with small_disk(home / "disk") as set_size:
                for name, (words, out) in COMMANDS.items():
                    for share in range(amount):
                        counts["full disks"] += 1
                        failures += on_disk(home, name, words, out, set_size, share / amount)
                    counts["read-only folders"] += 1
                    failures += on_disk(home, name, words, out, set_size, -1)
        except NotRun as reason:
            counts["full disks"] = f"no ({reason})"
    return counts, failures


def write_inputs(home: Path) -> None:
    """Write what the commands read, and older results of each."""
    home.mkdir()
    (home / "e.txt").write_text("".join(f"{u} {(u * 7 + 1) % 90}\n" for u in range(90)))
    need(here("convert", GRAPH, home / "g"))
    before = Path.cwd()
    os.chdir(home)
    try:
        for name, (words, _) in COMMANDS.items():
            if name == "report":
                need(here(*TRAIN, "--epochs", 4, "--out", "run"))
            need(here(*words))
    finally:
        os.chdir(before)


def sizes_of(home: Path, words: list[str], out: str) -> list[int]:
    """Return one byte less than each file that a command writes, but for those of less than 64 bytes."""
    shutil.copytree(home / "own", work := home / "work")
    need(spgnn(*words, cwd=work))
    files = [work / out] if (work / out).is_file() else [path for path in (work / out).rglob("*") if path.is_file()]
    found = sorted({path.stat().st_size - 1 for path in files if path.stat().st_size > 64})
    shutil.rmtree(work)
    return found


def tried(home: Path, name: str, words: list[str], out: str, before: list) -> list[str]:
    """Run a command under a limit in a copy; return what is wrong afterwards."""
    shutil.copytree(home / "own", work := home / "work")
    try:
        return judged(name, spgnn(*words, cwd=work, before=before), work, home / "own", out)
    finally:
        shutil.rmtree(work)


def judged(name: str, ended, work: Path, own: Path, out: str) -> list[str]:
    """Return what is wrong: an exit code, what was there before, or what was left."""
    if fault := ended.fault(0, 4):
        return [f"{name}: {fault}"]
    partial = f".{out}.partial"  # from which a pipeline goes on
    left = {path.name for path in work.iterdir()} - {path.name for path in own.iterdir()} - {partial}
    wrong = [f"{name}: left over: {left}"] if left else []
    if ended.code == 0:
        return wrong
    if out in ("run", "avg"):  # the run that was there, or its continuation, has whole checkpoints
        check = spgnn("predict", "run", "--out", "x.npy", cwd=work)
        return wrong + ([f"{name}: the run before: {check.err[-300:]}"] if check.code else [])
    is_same = tree(work / out) == tree(own / out) if (own / out).is_dir() else content(work / out) == content(own / out)
    return wrong + ([] if is_same else [f"{name}: what was there has changed"])


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


@contextmanager
def small_disk(place: Path):
    """Mount a file system in memory; yield a function that sets its size. Raises: NotRun where that is not allowed."""
    place.mkdir()
    mount = lambda *words: subprocess.run(["mount", *words], capture_output=True, text=True)
    if os.geteuid() or mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)).returncode:
        raise NotRun("a small file system cannot be mounted here")
    try:
        yield lambda options: mount("-o", f"remount,{options}", str(place))
    finally:
        subprocess.run(["umount", str(place)], capture_output=True)


def on_disk(home: Path, name: str, words: list[str], out: str, set_size, share: float) -> list[str]:
    """Run a command on a disk with room for a share of what it writes; -1: on one that is read-only."""
    set_size("rw,size=64m")
    shutil.copytree(home / "own", work := home / "disk" / "work")
    try:
        used = (os.statvfs(work).f_blocks - os.statvfs(work).f_bfree) * os.statvfs(work).f_frsize
        room = int(share * sum(len(content) for content in tree(work / out).values())) if (work / out).is_dir() else 0
        set_size("ro" if share < 0 else f"size={used + room + 4096}")
        ended = spgnn(*words, cwd=work, env={"TMPDIR": str(home)})
        set_size("rw,size=64m")
        return judged(
            f"{name}, {'read-only' if share < 0 else f'room for {share:.0%}'}", ended, work, home / "own", out
        )
    finally:
        set_size("rw,size=64m")
        shutil.rmtree(work)


def plant() -> None:
    """A disk that is full is an error like any other."""
    from spgnn import atomic

    atomic._refused = lambda path, error, option="": RuntimeError(f"{path}: {error}")
