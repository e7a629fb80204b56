"""Sphinx: the pages as they are in the repository, with what is generated: the command line and the Python API.

`runs/site` builds them. Pages read as plain Markdown; the map (docs/README.md) gives the order of the navigation.
"""

import contextlib
import importlib
import inspect
import io
import re
import shutil
from pathlib import Path

import spgnn
from spgnn import cli

DOCS = Path(__file__).resolve().parent
MAP = "docs/README"
ELSEWHERE = ["runs/bench/results/*.md", "spgnn/partition/refine/README.md"]  # pages that others link to
TREE = "```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"
API = ("spgnn", "spgnn.layers", "spgnn.samplers")

project, author, version = "spgnn", "the spgnn authors", spgnn.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/*/*.md", *ELSEWHERE]
exclude_patterns = ["build", "dist", "tests", "runs/out", ".*"]
smartquotes = False
highlight_language = "text"  # blocks without a language show commands and what they print
html_theme = "furo"
html_title = f"spgnn {version}"
html_static_path = html_css_files = ["site.css"]
html_show_copyright = False
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 80


def navigation() -> str:
    """Return the tables of contents: a caption per heading of the map, the pages in the order of its links to no heading."""
    trees, seen = [TREE.format(caption="Start", pages="/" + MAP)], set()
    for section in re.split(r"^## ", (DOCS / "README.md").read_text(encoding="utf-8"), flags=re.M)[1:]:
        caption, _, body = section.partition("\n")
        pages = [page for page in dict.fromkeys(re.findall(r"\]\(([\w./-]+)\.md\)", body)) if page not in seen]
        seen |= {*pages}
        if pages:
            trees.append(TREE.format(caption=caption, pages="\n".join(f"/docs/{page}" for page in pages)))
    return "\n".join(trees)


def options() -> str:
    """Return a section per command: what `spgnn CMD --help all` prints."""
    sections = []
    for name in cli.COMMANDS:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            cli.main([name, "--help", "all"])
        sections.append(f"## spgnn {name}\n\n```text\n{printed.getvalue().rstrip()}\n```\n")
    return "\n".join(sections)


def docstrings() -> str:
    """Return a section per package of API: the signature and docstring of each of its public names."""
    sections, seen = [], set()
    for package in API:
        module = importlib.import_module(package)
        lines = [f"## Package {package}\n", "```{eval-rst}", f".. py:currentmodule:: {package}\n"]
        for name in module.__all__:
            value = getattr(module, name)
            if id(value) in seen:
                continue
            seen.add(id(value))
            if inspect.isclass(value):
                lines += [f".. autoclass:: {name}", "   :members:\n"]
            elif callable(value):
                lines += [f".. autofunction:: {name}\n"]
        sections.append("\n".join([*lines, "```\n"]))
    return "\n".join(sections)


BACKSLASH = "\\"
GENERATED = {"docs/cli": options, "docs/api": docstrings, "README": navigation}


def add_generated(app, page, source):
    if page in GENERATED:
        source[0] += "\n" + GENERATED[page]()
    if page != "README" and not page.startswith("docs/"):
        source[0] = "---\norphan: true\n---\n" + source[0]


def as_text(app, what, name, value, settings, lines):
    """The first paragraph of a docstring as text, the others, whose columns are aligned, as they are."""
    first = next((i for i, line in enumerate(lines) if not line.strip()), len(lines))
    head = re.sub(r"([\\*|_])", r"\\\1", " ".join(line.strip() for line in lines[:first]))
    head = re.sub(r"`([^`]+)`", lambda code: f"``{code[1].replace(BACKSLASH, '')}``", head)
    rest = "\n".join(lines[first:]).strip("\n")
    code = [".. code-block:: text", "", *(f"   {line}" for line in rest.split("\n")), ""] if rest else []
    lines[:] = [head, "", *code]


def as_python(app, what, name, value, settings, signature, result):
    """A default that is made by a function is no Python: shown as `...`."""
    return (signature or "").replace("<factory>", "...") or None, result


def copy_index(app, error):
    if error is None and app.builder.name == "html":
        shutil.copyfile(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app):
    app.connect("source-read", add_generated)
    app.connect("autodoc-process-docstring", as_text)
    app.connect("autodoc-process-signature", as_python)
    app.connect("build-finished", copy_index)
