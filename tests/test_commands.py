"""The commands of README, CONTRIBUTING and docs: spgnn and the scripts take the options that they are shown with."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md"))]
OTHERS = ("pip", "pytest", "ruff", "clang-format", "python", ".")  # programs that are not ours
LAUNCH = tuple(
    f"runs/launch/{name}" for name in ("mpirun", "hosts", "slurm", "torchrun")
)  # whose arguments go to `spgnn train`
# Parses the options of each script of a list of argv, ends it before it does anything, and prints [exit code, what it says].
PARSED = """
import argparse, contextlib, io, json, runpy, sys, click
parse = argparse.ArgumentParser.parse_args
def parsed(*args, **options):
    parse(*args, **options)
    sys.exit(0)
argparse.ArgumentParser.parse_args = parsed
click.Command.invoke = lambda self, ctx: None if isinstance(self, click.Group) else sys.exit(0)
path, found = list(sys.path), []
for argv in json.loads(sys.argv[1]):
    sys.argv, sys.path[:] = argv, [argv[0].rpartition("/")[0], *path]
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(None):
        try:
            if argv[0] == "spgnn":
                from spgnn.cli import main
                code = main(argv[1:])
            else:
                runpy.run_path(argv[0], run_name="__main__")
                code = 3
        except SystemExit as end:
            code = end.code
    found.append([code, said.getvalue()])
print(json.dumps(found))
"""


def is_command(words: list[str]) -> bool:
    """Whether words begin with a program: spgnn, a launcher, a script of runs/, one of OTHERS."""
    return bool(words) and (words[0] in ("spgnn", "mpirun", "srun", "sbatch", *OTHERS) or is_script(words[0]))


def is_script(word: str) -> bool:
    path = ROOT / word
    return word.removeprefix("./").startswith("runs/") and path.is_file() and os.access(path, os.X_OK)


def without_variables(line: str) -> list[str]:
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    return words


def blocks_of(text: str) -> list[str]:
    """The fenced blocks of a page that are not Python, and its indented ones."""
    fenced = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
    found = [body for language, body in fenced.findall(text) if language != "python"]
    return found + re.findall(r"(?:^    \S.*\n)+", fenced.sub("", text), re.M)


def commands_in(text: str) -> list[str]:
    """The command lines of the blocks, one after the other; of several on a line each."""
    lines = [line.strip().removeprefix("$ ") for block in blocks_of(text) for line in block.splitlines()]
    lines = [re.split(r"  +(?!-|#)", line)[0] for line in lines]  # a list of commands has what they do beside them
    return [line for line in lines if re.match(r"[\w./=]", line) and "'" * 3 not in line and is_command(_split(line))]


def _split(line: str) -> list[str]:
    try:
        return without_variables(line)
    except ValueError:  # no closing quotation: it is output
        return []


def spans_in(text: str) -> list[str]:
    """The commands with options inside of the text."""
    spans = [
        " ".join(span.split())
        for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M))
    ]
    return [
        span
        for span in spans
        if " -" in span
        and not re.match(r"spgnn [A-Z]", span)
        and _split(span)[:1]
        and (span.startswith("spgnn ") or is_script(_split(span)[0]))
    ]


def parts_of(words: list[str]) -> list[list[str]]:
    """The commands of ours in a command line, launchers left out: [[spgnn, train, ...], [runs/bench/volume, ...]]."""
    for place, word in enumerate(words):
        if word in ("|", ">", ">>"):
            return parts_of(words[:place])
        if word.endswith(";"):
            return parts_of([*words[:place], word[:-1]]) + parts_of(words[place + 1 :])
    words = [
        inner for word in words for inner in (shlex.split(word) if " spgnn " in f" {word} " and " " in word else [word])
    ]
    starts = [i for i, word in enumerate(words) if word == "spgnn" or is_script(word)]
    ends = [*starts[1:], len(words)]
    return [[word for word in words[a:b] if word != "--"] for a, b in zip(starts, ends)]


def refusals(commands: list[list[str]], python: str) -> list[str]:
    """What is wrong with commands of ours, nothing where they take all options; values in capitals are placeholders."""
    given = []
    for words in commands:
        if words[0].removeprefix("./") in LAUNCH:
            words = ["spgnn", "train", *words[1:]]
        path = ROOT / words[0]
        if words[0] == "spgnn":
            given.append(words)
        elif path.read_text(encoding="utf-8").startswith("#!/usr/bin/env python3"):
            given.append([str(path), *words[1:]])
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    words = [python, "-c", PARSED, json.dumps(given)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return [
        f"{shlex.join(words)}: {said[-600:]}"
        for words, (code, said) in zip(given, json.loads(done.stdout), strict=True)
        if code and not re.search(r"Missing argument|'[A-Z]+' is not a valid", said)
    ]


@pytest.mark.slow
def test_the_commands_on_pages_take_the_options_that_they_are_shown_with(python):
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
    found = [commands_in(text) for text in texts]
    assert sum(map(bool, found)) > len(PAGES) / 2 and sum(map(len, found)) >= 80
    lines = dict.fromkeys(line for text, commands in zip(texts, found) for line in [*commands, *spans_in(text)])
    faults = refusals([part for line in lines for part in parts_of(_split(line))], python)
    assert not faults, "\n".join(faults)


@pytest.mark.slow
def test_an_unknown_option_is_found(python):
    lines = ("spgnn train wordnet --hallo 2", "runs/bench/volume --graphs arxiv", "runs/bench/volume --layers 2")
    hallo, layers = refusals([line.split() for line in lines], python)
    assert "--hallo" in hallo and "--layers" in layers
