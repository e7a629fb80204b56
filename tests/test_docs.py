"""The pages: what they link to is there, and every picture is on one."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
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


def test_every_picture_is_on_a_page():
    shown = {(page.parent / target).resolve() for page in PAGES for target, _ in LINK.findall(prose(page))}
    assert not [picture for picture in DOCS.rglob("*.png") if picture not in shown]
