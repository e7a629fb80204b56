"""The pages: what they link to is there, their Python runs and prints what they show, every picture is on one."""

import hashlib
import re
import runpy
import sys
from functools import cache
from pathlib import Path

import pytest
from test_house import texts_of_the_repository
from worlds import launch

import spgnn
from spgnn.config.names import SAMPLERS
from spgnn.layers.registry import FAMILIES, reads_relations

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
# formats.md has files that nobody has; README.md, CONTRIBUTING.md and the tutorial have tests of their own.
WITH_PYTHON = [
    page.relative_to(DOCS).as_posix()
    for page in sorted(DOCS.glob("*.md"))
    if "\n```python\n" in page.read_text(encoding="utf-8") and page.name != "formats.md"
]
ON_EDGES = [name for name, family in FAMILIES.items() if "f_edge" in family.reads]
RELATED = {name for name in FAMILIES if reads_relations(name)}
MARK = "---- end of a block ----"
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")


def prose(page: Path) -> str:
    """Return a page without its code, which has brackets of its own."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as forges and MyST name them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_files_and_headings_that_a_page_links_to_are_there():
    missing = []
    for page in PAGES:
        for target, anchor in LINK.findall(prose(page)):
            there = (page.parent / target).resolve() if target else page
            is_right = there.exists() and (not anchor or there.suffix != ".md" or anchor in anchors(there))
            missing += [] if is_right else [f"{page.relative_to(ROOT)}: {target}#{anchor}"]
    assert not missing


@pytest.mark.slow
def test_pages_that_code_and_messages_name_are_there():
    named = {
        (path.relative_to(ROOT).as_posix(), page)
        for path in [*texts_of_the_repository(), ROOT / "ruff.toml"]
        for page in re.findall(
            r"\bdocs/[\w/-]+\.(?:md|png|sha256)\b", path.read_text(encoding="utf-8", errors="ignore")
        )
    }
    assert len(named) > 5 and not [found for found in named if not (ROOT / found[1]).exists()]


def test_every_picture_is_on_a_page():
    shown = {(page.parent / target).resolve() for page in PAGES for target, _ in LINK.findall(prose(page))}
    assert not [picture for picture in DOCS.rglob("*.png") if picture not in shown]


def blocks_and_output(page: Path) -> list[tuple[str, str | None]]:
    """Return each Python block of a page with the output that is shown below it, if any."""
    text = page.read_text(encoding="utf-8")
    return [(m[1], m[2]) for m in re.finditer(r"^```python\n(.*?)^```\n(?:```\n(.*?)^```$)?", text, re.S | re.M)]


@pytest.mark.parametrize(
    "page, names",
    [
        ("models.md", FAMILIES.keys() - ON_EDGES - RELATED),
        ("edges.md", ON_EDGES),
        ("relations.md", RELATED),
        ("models.md", SAMPLERS),
    ],
)
def test_every_model_and_sampler_has_a_line_of_python(page, names):
    code = "".join(code for code, _ in blocks_and_output(DOCS / page))
    assert not [name for name in names if f'"{name}": ' not in code]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python_on_a_page_runs_and_prints_what_is_shown(page, python, tmp_path):
    blocks = blocks_and_output(DOCS / page)
    if any("torch_geometric" in code for code, _ in blocks):
        pytest.importorskip("torch_geometric")
    source = "\n".join(f"{code}\nprint({MARK!r})" for code, _ in blocks)
    (tmp_path / "page.py").write_text(source)
    done = launch(0, [python, tmp_path / "page.py"], limit_s=300, cwd=tmp_path)
    assert done.code == 0, done.err
    printed = done.out.split(f"{MARK}\n")
    for (_, shown), output in zip(blocks, printed):
        assert shown in (None, output)


def test_every_page_is_on_the_map():
    linked = {(DOCS / target).resolve() for target, _ in LINK.findall(prose(DOCS / "README.md"))}
    assert not [page for page in DOCS.rglob("*.md") if page != DOCS / "README.md" and page not in linked]


def test_every_page_is_in_the_navigation_of_the_site_once():
    trees = runpy.run_path(str(DOCS / "conf.py"))["navigation"]()
    pages = sorted(page.relative_to(ROOT).with_suffix("").as_posix() for page in DOCS.rglob("*.md"))
    assert sorted(re.findall(r"^/(docs/\S+)$", trees, re.M)) == pages


def test_every_public_name_is_on_the_page_of_python():
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    assert not [name for name in spgnn.__all__ if name != "__version__" and f"`{name}`" not in text]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_has_options_and_docstrings(tmp_path):
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-c", "docs", ".", tmp_path]
    done = launch(0, command, limit_s=300, cwd=ROOT)
    assert done.code == 0, done.err
    for page, texts in {
        "index": ["Quickstart"],
        "docs/cli": ["--eval-every"],
        "docs/api": ["Trainer.load_state_dict"],
    }.items():
        assert all(text in (tmp_path / f"{page}.html").read_text(encoding="utf-8") for text in texts)
    built = [page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html") if page.stem != "genindex"]
    assert all('content="width=device-width' in page for page in built)  # on a phone, site.css does the rest
    assert all(page.count("<table") == page.count('<div class="table-wrapper colwidths-auto') for page in built)
    for selector in ('role="main"', "<article", 'data-theme="dark"', "docutils container"):
        assert any(selector in page for page in built), f"site.css reads {selector}"


@pytest.mark.data
def test_graphs_are_those_that_were_measured(data_dir):
    lines = (DOCS / "data.sha256").read_text().splitlines()
    found = {name: hashlib.sha256((data_dir / name).read_bytes()).hexdigest() for _, name in map(str.split, lines)}
    assert found == {name: digest for digest, name in map(str.split, lines)}
