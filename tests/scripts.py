"""Scripts of runs/, which have no ending: as modules of this process."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

RUNS = Path(__file__).resolve().parents[1] / "runs"


def script(name: str):
    """Return runs/NAME as a module; what it imports from beside it stays importable."""
    path = RUNS / name
    folders = [str(folder) for folder in (path.parent, path.parent.parent, RUNS / "bench")]
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    loader = SourceFileLoader(name.replace("/", "_"), str(path))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def printed(module, monkeypatch, capsys, *words) -> tuple[int, str]:
    """Run a script with a command line; return its exit code and what it printed."""
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, words)])
    capsys.readouterr()
    return module.main() or 0, capsys.readouterr().out
