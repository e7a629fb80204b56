"""Hostile names of files, nodes, classes and options in terminal, pages and files: they are inert."""

import json
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

from attack import FAST, GRAPH, folder, here, isolated, need

QUICK, FULL = 6, 17  # names
NAMES = {
    "escape": "a\x1b[2J\x1b]0;title\x07b", "newline": "a\nspgnn: error: fake\nb", "carriage": "a\rb", "page": "<script>alert(1)</script>",
    "attribute": "\" onload=\"alert(1)\" x='", "entity": "&lt;&#x3c;b&gt;", "bidi": "a\u202egnp.exe", "option": "--overwrite",
    "shell": "$(touch pwned);`touch pwned`", "format": "{0.__class__}%s%n", "bytes": "a\udcff\udcfe", "long": "n" * 250,
    "rich": "[bold red]x[/]", "csi": "a\x9b31mb", "json": "\",\"x\":[", "toml": "\"\"\"\nlr = 9\n", "link": "[x](javascript:alert(1))",
}  # fmt: skip
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Tags(HTMLParser):
    """What a page runs: scripts, handlers, and links that are code."""

    def __init__(self):
        super().__init__()
        self.wrong: list[str] = []

    def handle_starttag(self, tag, attrs):
        is_code = [name for name, value in attrs if name.startswith("on") or (value or "").startswith("javascript:")]
        self.wrong += [f"page: <{tag}> with {is_code}"] if tag == "script" or is_code else []


def attack(seed: int, amount: int):
    """Give every name to every place that takes one; return how many outputs were searched, and which were not inert."""
    failures, count = [], 0
    with folder() as home:
        (home / "own").mkdir()
        need(here("convert", GRAPH, home / "own" / "g"))
        for name, found in isolated(lambda name: one(home, NAMES[name]), list(NAMES)[:amount], 60):
            count += found.get("outputs", 0)
            failures += [f"{name}: {said}" for said in found.get("wrong", [found.get("crash")])]
    return {"names": amount, "outputs": count}, failures


def one(home: Path, name: str) -> dict:
    """Use a name as a file, a folder, an option, a key and a class; return what is wrong with what was printed or written."""
    shutil.rmtree(work := home / "work", ignore_errors=True)
    shutil.copytree(home / "own", work)
    os.chdir(work)
    file = name.replace("/", "_")
    safe = f"./{file}"
    Path(safe).write_text("0 1\n1 2\n")
    Path("c.toml").write_text(f"{json.dumps(name.encode(errors='replace').decode())} = 1\n")
    Path("names.txt").write_bytes(f"{name} b\nb c\n".encode(errors="surrogateescape"))
    commands = [
        ["info", safe], ["info", name], ["convert", safe, f"{safe}.g"], ["info", f"{safe}.g"],
        ["info", "names.txt"], ["train", name], ["train", "g", "--method", name], ["train", "g", f"--{name}", "1"],
        ["train", "g", "--config", "c.toml"], ["partition", "g", "-k", "2", "--out", f"{safe}.p"], ["check", f"{safe}.p"],
        ["train", f"{safe}.p", *FAST, "--epochs", "2", "--out", f"{safe}.run"], ["predict", f"{safe}.run"],
        ["train", f"{safe}.g", *FAST], ["report", f"{safe}.run", "--out", f"{safe}.html"], ["measure", "g", "--partition", f"{safe}.p", "--json"],
    ]  # fmt: skip
    wrong, outputs = [], 0
    for words in commands:
        ended = here(*words)
        outputs += 2
        said = f"{' '.join(words)[:60]!r}: "
        if fault := ended.fault():
            wrong.append(said + fault)
        for text in (ended.out, ended.err):
            wrong += [said + f"prints {found!r}" for found in RAW.findall(text)[:1]]
            wrong += [said + "prints a line of the name" for line in text.splitlines() if line == "spgnn: error: fake"]
    for page in work.rglob("*.html"):
        outputs += 1
        (tags := Tags()).feed(page.read_text(errors="replace"))
        wrong += tags.wrong
    for path in [*work.rglob("*.json"), *work.rglob("*.jsonl")]:
        outputs += 1
        for line in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            json.loads(line)
    wrong += ["a shell ran it"] if list(work.rglob("pwned")) else []
    os.chdir(home)
    return {"wrong": wrong, "outputs": outputs}


def plant() -> None:
    """Control characters are printed as they are."""
    from spgnn import errors

    errors.CONTROL.clear()
