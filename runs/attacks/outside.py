"""Names that lead outside, links, pipes, devices, two writers: nothing outside of what was named is read or written."""

import json
import os
import shutil
import sys
from pathlib import Path

from attack import FAST, GRAPH, finish, folder, here, isolated, need, spgnn, start, tree

QUICK, FULL = 1, 50  # pairs of writers of each kind
# Files that are replaced, and the command that reads or writes them.
READ = {
    "g/*": ["check", "g"],
    "p/*": ["measure", "g", "--partition", "p"],
    "p/**/*.npy": ["check", "p"],
    "p/part-00000/*": ["train", "p", "--mode", "average", "--epochs", "1", *FAST, "--out", "new"],
    "run/checkpoints/*/*": ["predict", "run", "--out", "new.npy"],
    "run/*.*": ["report", "run", "--out", "new.html"],
    "[xe].*": ["info", "e.txt", "--features", "x.npy"],
    "c.toml": ["train", "g", *FAST, "--config", "c.toml", "--out", "new"],
}
RESUME = ["train", "--resume", "run", "--epochs", "4"]
WRITTEN = {
    "g/*": ["convert", GRAPH, "g"],
    "p/**/*": ["partition", "g", "-k", "2", "--out", "p"],
    "run/*.*": RESUME,
}
WRITERS = (
    ["convert", GRAPH, "new"],
    ["partition", "g", "-k", "2", "--out", "new"],
    ["report", "run", "--out", "new"],
    ["predict", "run", "--out", "new"],
)


def attack(seed: int, amount: int):
    """Replace files by links, pipes, devices and names that lead outside, and let two commands write one place."""
    failures, counts = [], {"names": 0, "pipes and devices": 0, "links": 0, "pairs of writers": 0}
    with folder() as home:
        write_folders(home / "own")
        (home / "secret").mkdir()
        for kind, cases in {
            "names": [(traverse, *case) for case in named(home / "own")],
            "pipes and devices": [(block, *case) for case in files(home / "own", READ)],
            "links": [(link, *case) for case in files(home / "own", WRITTEN)],
        }.items():
            for (_, name, *_), found in isolated(lambda case: one(home, *case), cases, 40):
                counts[kind] += 1
                if said := found.get("crash") or found["wrong"]:
                    failures.append(f"{kind}, {name}: {said}")
        for words in WRITERS:
            counts["pairs of writers"] += amount
            failures += [said for _ in range(amount) if (said := two_writers(home / "own", words))]
    return counts, failures


def write_folders(home: Path) -> None:
    """Write a graph, parts, a run, files of text and what commands have written."""
    home.mkdir()
    (home / "e.txt").write_text("0 1\n1 2\n2 0\n")
    (home / "c.toml").write_text("epochs = 1\n")
    need(here("convert", GRAPH, home / "g"))
    need(here("partition", home / "g", "-k", 2, "--out", home / "p"))
    need(here("train", home / "g", *FAST, "--epochs", 2, "--checkpoint-every", 0, "--out", home / "run"))
    need(here("report", home / "run", "--out", home / "page.html"))
    need(here("predict", home / "run", "--out", home / "pred.npy"))
    shutil.copy(home / "g" / "features.npy", home / "x.npy")


def files(home: Path, commands: dict) -> list[tuple]:
    """Return (name, command) of all files that a table of commands names, the first of files of one name in many folders."""
    found = {}
    for pattern, words in commands.items():
        for path in sorted(home.glob(pattern)):
            if path.is_file():
                found.setdefault((path.name, tuple(words)), str(path.relative_to(home)))
    return [(name, list(words)) for (_, words), name in found.items()]


def named(home: Path) -> list[tuple]:
    """Return (manifest, command, name of a file in it) of each name of a file in a manifest."""
    cases = []
    for manifest, words in {
        "g/manifest.json": ["check", "g"],
        "p/manifest.json": ["check", "p"],
        **{str(p.relative_to(home)): RESUME for p in home.glob("run/checkpoints/*/manifest.json")},
    }.items():
        text = (home / manifest).read_text()
        present = {path.name for path in (home / manifest).parent.rglob("*")} | {"graph.npy", "labels"}
        names = [name for name in sorted(present) if f'"{name}"' in text]
        cases += [(manifest, words, name, is_absolute) for name in names for is_absolute in (False, True)]
    return cases


def one(home: Path, change, name: str, words: list[str], *more) -> dict:
    """Change one file in a copy, and run a command there."""
    shutil.rmtree(work := home / "work", ignore_errors=True)  # of a case that did not end
    shutil.copytree(home / "own", work, symlinks=True)
    os.chdir(work)
    opened: list[str] = []
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
    try:
        wrong = change(work, name, words, opened, *more)
    finally:
        os.chdir(home)
        shutil.rmtree(work)
    return {"wrong": wrong}


def traverse(work: Path, name: str, words: list[str], opened: list[str], file: str, is_absolute: bool) -> str:
    """Let a manifest name a file outside."""
    secret = work.parent / "secret" / "kept.npy"
    shutil.copy(next(work.rglob(file), work / "x.npy"), secret)
    where = str(secret) if is_absolute else "../../secret/kept.npy"
    manifest = json.loads((work / name).read_text().replace(f'"{file}"', json.dumps(where)))
    if "sha256" in manifest:  # of all the rest
        from spgnn.experiment.checkpoint import seal

        manifest = seal({key: value for key, value in manifest.items() if key != "sha256"})
    (work / name).write_text(json.dumps(manifest))
    opened.clear()
    if fault := here(*words).fault():
        return f"{file} -> {where}: {fault}"
    return f"{file} -> {where} was opened" if any(Path(path).name == secret.name for path in opened) else ""


def block(work: Path, name: str, words: list[str], opened: list[str]) -> str:
    """Put a pipe, and then a device without an end, in the place of a file."""
    for kind in ("pipe", "device", "folder"):
        (work / name).unlink()
        {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "folder": os.mkdir}[kind](work / name)
        ended = here(*words)
        if fault := ended.fault(0, 3, *((2, 4) if name == "c.toml" else ())):
            return f"{kind}, {words[0]}: {fault}"
        for made in (work / "new", work / "new.html", work / "new.npy"):
            shutil.rmtree(made) if made.is_dir() else made.unlink(missing_ok=True)
    return ""


def link(work: Path, name: str, words: list[str], opened: list[str]) -> str:
    """Put a link to a file outside in the place of one that a command writes."""
    (work / name).replace(victim := work.parent / "secret" / "victim")
    before = victim.read_bytes()
    (work / name).symlink_to(victim)
    ended = here(*words)
    if fault := ended.fault():
        return f"{words[0]}: {fault}"
    return "" if victim.read_bytes() == before else f"{words[0]} wrote through a link"


def two_writers(home: Path, words: list[str]) -> str:
    """Run a command twice at once; return what is wrong: one has to be whole, and nothing else may be left."""
    new = home / "new"
    alone = need(spgnn(*words, cwd=home)) and contents(new)
    remove(new)
    names = {path.name for path in home.iterdir()}
    ended = [finish(process) for process in [start(*words, cwd=home) for _ in range(2)]]
    codes = sorted(e.code if e.code is not None else -99 for e in ended)
    left = {path.name for path in home.iterdir()} - names - {"new"}
    same = new.exists() and contents(new) == alone
    remove(new)
    if wrong := next((fault for e in ended if (fault := e.fault(0, 2, 3, 4))), ""):
        return f"two writers, {words[0]}: {wrong}"
    return (
        "" if 0 in codes and same and not left else f"two writers, {words[0]}: codes {codes}, equal {same}, left {left}"
    )


def contents(path: Path):
    """Return what a command wrote, arrays only where it is a folder: manifests have the time it took."""
    if path.is_file():
        return path.stat().st_size // 100 if path.read_bytes()[:1] == b"<" else path.read_bytes()
    return {name: content for name, content in tree(path).items() if name.endswith(".npy")}


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def plant() -> None:
    """Every link is followed."""
    from spgnn import atomic

    atomic._without_links = lambda final: Path(os.path.realpath(final))
