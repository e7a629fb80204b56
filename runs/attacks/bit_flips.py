"""Single bit flips in graphs, parts and checkpoints: every one is seen."""

import random
import shutil
from collections import Counter
from pathlib import Path

from attack import FAST, GRAPH, folder, here, isolated, need

QUICK, FULL = 100, 5_000  # flips
# What is flipped -> the commands of which one has to see it, by exit code 3.
SEEN = {
    "g/*.npy": [["check", "g"]],
    "p/*.npy": [["check", "p"]],
    "p/*/*.npy": [["check", "p"]],
    "run/checkpoints/*/*": [["predict", "run", "--out", "new.npy"], "train --resume run --epochs 4".split()],
}


def attack(seed: int, amount: int):
    """Flip one random bit of one random file, amount times; return how many were seen, and which were not."""
    seen, failures = Counter(), []
    with folder() as home:
        need(here("convert", GRAPH, home / "g"))
        need(here("partition", home / "g", "-k", 3, "--out", home / "p"))
        run = [*FAST, "--epochs", 3, "--checkpoint-every", 0, "--out", home / "run"]
        need(here("train", home / "g", *run))
        for number, found in isolated(lambda number: flip(home, random.Random(f"{seed} {number}")), range(amount)):
            seen[found.get("kind")] += not found.get("crash") and found["is_seen"]
            if said := found.get("crash") or ("" if found["is_seen"] else found["said"]):
                failures.append(f"flip {number}, {found.get('what', '')}: {said}")
    return {"flips": amount, "seen": sum(seen.values())}, failures


def flip(home: Path, dice: random.Random) -> dict:
    """Flip a bit in a copy, and run the commands that have to see it."""
    shutil.rmtree(work := home.parent / "work", ignore_errors=True)  # of a case that did not end
    shutil.copytree(home, work)
    try:
        kind = dice.choice(list(SEEN))
        path = dice.choice(sorted(work.glob(kind)))
        content, bit = bytearray(path.read_bytes()), dice.randrange(8)
        content[at := dice.randrange(len(content))] ^= 1 << bit
        path.write_bytes(content)
        for other in work.glob(
            "run/checkpoints/*"
        ):  # the one before would be taken in its place, with no need to read it
            if kind.startswith("run") and other != path.parent:
                shutil.rmtree(other)
        is_seen, said = False, []
        for words in SEEN[kind]:
            ended = here(*(work / word if (work / word).exists() or "new" in word else word for word in words))
            said.append(ended.fault(0, 3) or f"{words[0]} gave {ended.code}")
            is_seen |= not ended.fault(0, 3) and ended.code == 3
    finally:
        shutil.rmtree(work)
    what = f"bit {bit} of byte {at} of {path.relative_to(work)}"
    return {"kind": kind, "what": what, "is_seen": is_seen, "said": ", ".join(said)}


def plant() -> None:
    """Checksums that are always right."""
    from spgnn.data import native

    native._verify = lambda path, files, progress: None
