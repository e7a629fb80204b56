"""kill -9 at random moments of commands and trainings: what is there loads, and results after going on are equal."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
from attack import GRAPH, finish, folder, here, need, put, spgnn, start, tree

QUICK, FULL = 5, 950  # kills, in turn of the kinds
LARGER = "sbm:n=2000,classes=6,features=16,degree=8,seed=1"
COMMON = "--hidden 16 --method random --checkpoint-every 0 --threads 1 --seed 5 --resume auto".split()
AVERAGE = "--mode average --parts 6 --interval 3 --epochs 120 --dropout 0.3"
TRAININGS = {
    "adam": "--epochs 250",
    "dropout": "--epochs 250 --dropout 0.4 --optimizer sgd --lr 0.5 --weight-decay 1e-4",
    "pruned": "--epochs 250 --dropout 0.4 --prune always",
    "patience": "--epochs 4000 --patience 60 --dropout 0.3 --lr 0.003",
    "walk": "--epochs 200 --sampler walk --budget 300 --dropout 0.3 --model sage",
    "frontier": "--epochs 60 --sampler frontier --budget 300 --subgraphs 3 --eval-every 2",
    "neighbour": "--epochs 500 --sampler neighbour --batch 256 --fanout 8,5 --class-balance 0.5 --dropout 0.2",
    "average": AVERAGE,
    "average, layer by layer": f"{AVERAGE} --evaluation layerwise",
    "average, drift": f"{AVERAGE} --correct drift",
    "average, sampled": f"{AVERAGE} --epochs 60 --sampler neighbour --batch 64 --fanout 5,5",
    "average, personal": f"{AVERAGE} --epochs 90 --personal 150",
    "wires": "--epochs 250 --wire bfloat16 --wire-gradients float16 --dropout 0.2 --eval-every 3",
    "other ranks": "--dtype float64 --scheme cover --epochs 120 --dropout 0.2",
}
RANKS = (1, 3, 4)
ELSEWHERE = (  # ranks and options on which a training of "other ranks" goes on
    (3, ""), (1, ""), (2, "--scheme broadcast"), (2, "--method block"), (4, "--replication 2"),
    (8, "--replication 2 --scheme columns --method metis"),
)  # fmt: skip
COMMANDS = {  # writes OUT; the command that reads it
    "convert": (["convert", LARGER], ["check", "OUT"]),
    "partition": (["partition", "g", "-k", "5", "--out"], ["check", "OUT"]),
    "pipeline": ("partition e.txt -k 5 --memory 2GB --method spring+ --features x.npy --out".split(), ["check", "OUT"]),
    "predict": (["predict", "run", "--out"], []),
    "report": (["report", "run", "--out"], []),
}
MEASURED = ("epoch_s", "peak_rss_mb", "sample_s", "sample_wait_s", "load_s", "local_s", "sync_s", "seconds")


def attack(seed: int, amount: int):
    """Kill a command, or a random rank of a training, amount times; return kills by what they hit, and what differed."""
    dice, failures, counts = random.Random(seed), [], {"kills": 0, "with a checkpoint": 0, "of commands": 0}
    kinds = list(TRAININGS)
    dice.shuffle(kinds)
    turns = [name for pair in zip(COMMANDS, kinds) for name in pair] + kinds[len(COMMANDS) :]
    with folder() as home:
        write_inputs(home)
        for name in dict.fromkeys(turns[:amount]):
            kills = len(range(turns.index(name), amount, len(turns)))
            try:
                if name in COMMANDS:
                    failures += kill_command(home, name, kills, dice)
                    counts["of commands"] += kills
                else:
                    failures += kill_training(home, name, kills, dice, counts)
            except RuntimeError as error:
                failures.append(f"{name}: {error}"[:1500])
            counts["kills"] += kills
    return counts, failures


def write_inputs(home: Path) -> None:
    need(here("convert", LARGER, home / "g"))
    need(here("train", GRAPH, "--epochs", 2, "--hidden", 4, "--threads", 1, "--out", home / "run"))
    rng = np.random.default_rng(0)
    np.savetxt(home / "e.txt", rng.integers(0, 3000, (40_000, 2)), fmt="%d")
    np.save(home / "x.npy", rng.random((3000, 8), np.float32))
    (home / "tmp").mkdir()


def kill_command(home: Path, name: str, kills: int, dice: random.Random) -> list[str]:
    """Kill a command that writes one place, over nothing and over an older result; return what is wrong."""
    words, check = COMMANDS[name]
    place, wrong = home / ("predictions.npy" if name == "predict" else f"{name}.out"), []
    begun = time.monotonic()
    need(spgnn(*words, place, cwd=home))
    whole_s, whole = time.monotonic() - begun, contents(place)
    for kill in range(kills):
        if is_new := dice.random() < 0.5:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        process = start(*words, place, cwd=home)
        time.sleep(dice.uniform(0, whole_s))
        process.kill()
        finish(process)
        time.sleep(0.2)
        if not place.exists():
            wrong += [] if is_new else [f"{name}, kill {kill}: what was there has gone"]
        else:
            fault = here(*(place if word == "OUT" else word for word in check)).fault(0) if check else ""
            if contents(place) != whole or fault:
                wrong.append(f"{name}, kill {kill}: what is there is not whole: {fault}")
        ended = spgnn(*words, place, cwd=home)
        if ended.code or contents(place) != whole:
            wrong.append(f"{name}, kill {kill}: again: {ended.fault(0) or 'another result'}")
        wrong += [f"{name}: left over: {path.name}" for path in home.iterdir() if path.name.startswith(".")]
    return wrong


def contents(path: Path):
    """Return what a command wrote, without what time it took."""
    if path.is_dir():
        return {name: content for name, content in tree(path).items() if name.endswith(".npy")}
    return path.read_bytes() if path.suffix == ".npy" or path.read_bytes()[:1] != b"<" else path.read_bytes()[-8:]


def train(home: Path, out: Path, ranks: int, options: str):
    """Start a training, or continue it."""
    return start(
        "train", LARGER, *COMMON, *options.split(), "--out", out, ranks=ranks, env={"TMPDIR": str(home / "tmp")}
    )


def complete(home: Path, out: Path, ranks: int, options: str) -> float:
    """Train to the end; return the seconds. Raises: RuntimeError with the messages of a training that fails."""
    return need(finish(train(home, out, ranks, options), 300)).seconds


def kill_training(home: Path, name: str, kills: int, dice: random.Random, counts: dict) -> list[str]:
    """Kill and continue trainings of one kind until there were so many kills; return what differs."""
    ranks = 2 if name == "other ranks" else dice.choice(RANKS)
    whole, cut, options = home / "whole", home / "cut", TRAININGS[name]
    whole_s, wrong = complete(home, whole, ranks, options), []
    while kills > 0 and not wrong:
        while kills > 0 and kill_rank(train(home, cut, ranks, options), cut, dice, whole_s):
            kills -= 1
            counts["with a checkpoint"] += any((cut / "checkpoints").glob("epoch-*"))
        if name == "other ranks":
            others, changes = dice.choice(ELSEWHERE)
            complete(home, cut, others, f"{options} {changes}")
            wrong += far(whole, cut, f"{name}: {others} ranks {changes}")
        else:
            complete(home, cut, ranks, options)
            wrong += [f"{name} on {ranks} ranks: differs: {key}" for key in differences(home, whole, cut)]
        shutil.rmtree(cut)
    shutil.rmtree(whole)
    return wrong


def kill_rank(training, out: Path, dice: random.Random, whole_s: float) -> bool:
    """End a random rank by SIGKILL at a random moment; return whether the training had not ended by itself."""
    begun, before = time.monotonic(), written(out)
    if dice.random() < 0.8:  # once it trains; else at any moment
        while training.poll() is None and written(out) == before and time.monotonic() - begun < 60:
            time.sleep(0.01)
        whole_s /= 2
    time.sleep(dice.uniform(0, whole_s))
    ranks = processes(out)
    if training.poll() is None and ranks:
        os.kill(dice.choice(ranks), signal.SIGKILL)
    was_killed = finish(training).code != 0
    time.sleep(0.2)
    return was_killed


def written(out: Path) -> int:
    """Return when env.json was written, as a training does before its first epoch."""
    return (out / "env.json").stat().st_mtime_ns if (out / "env.json").exists() else 0


def processes(out: Path) -> list[int]:
    """Return the processes that train into a folder, launchers left out."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(out).encode() in words and b"mpirun" not in words[0] and b"hydra" not in words[0]:
            found.append(int(entry.name))
    return found


def outcome(out: Path) -> dict:
    """Return what a run has left, without what time and memory it took."""
    lines = lambda path: [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    records, parts = lines(out / "metrics.jsonl"), lines(out / "parts.jsonl")
    summary = json.loads((out / "summary.json").read_text())
    (summary.get("workload") or {}).pop("M", None)  # memory that is free
    for values in (*records, *parts, summary):
        for name in MEASURED:
            values.pop(name, None)
    newest, personal = sorted((out / "checkpoints").glob("epoch-*"))[-1], out / "checkpoints" / "personal"
    files = {str(path.relative_to(newest)): path.read_bytes() for path in newest.glob("*.safetensors")}
    files |= {str(path.relative_to(personal)): path.read_bytes() for path in personal.rglob("*.safetensors")}
    found = {"records": records, "parts": parts, "summary": summary}
    return found | {"predictions": (out / "predictions.npy").read_bytes()} | files


def differences(home: Path, whole: Path, cut: Path) -> list[str]:
    """Return what differs between an uninterrupted run and one that was killed, and what the kills left over."""
    before, after = outcome(whole), outcome(cut)
    different = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
    counted = [after["summary"].get(name) for name in ("sync_bytes", "sync_bytes_predicted")]
    different += ["sync_bytes and those predicted"] if counted[0] != counted[1] else []
    hidden = [path for path in cut.iterdir() if path.name.startswith((".", "parts-"))]
    left = [path.name for path in (*hidden, *(home / "tmp").iterdir())]
    return different + ([f"left over: {left}"] if left else [])


def far(whole: Path, cut: Path, words: str) -> list[str]:
    """Return whether losses or weights of two runs differ by more than 1e-10."""
    from safetensors.numpy import load_file

    losses = [[record["loss"] for record in outcome(out)["records"]] for out in (whole, cut)]
    weights = [load_file(sorted(out.glob("checkpoints/epoch-*"))[-1] / "model.safetensors") for out in (whole, cut)]
    if len(losses[0]) != len(losses[1]):
        return [f"{words}: {len(losses[1])} epochs, expected {len(losses[0])}"]
    pairs = [losses, *((value, weights[1][key]) for key, value in weights[0].items())]
    worst = max(float(np.abs(np.subtract(*pair)).max()) for pair in pairs)
    return [f"{words}: differs by {worst:.2g}"] if worst > 1e-10 else []


def plant() -> None:
    """Folders that commands write have their names before they are written."""
    from contextlib import contextmanager

    from spgnn import atomic

    new_folder = atomic.new_folder

    @contextmanager
    def slowly(final: Path):
        if not final.name.endswith(".out"):
            with new_folder(final) as new:
                yield new
            return
        shutil.rmtree(final, ignore_errors=True)
        final.mkdir()
        time.sleep(5)
        yield final

    put(new_folder, slowly)
