"""spgnn verify: GRAPH, a model -> whether it computes the same on any ranks, and which module does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config import EMBEDDING, VerifyConfig
from ..config.groups import ModelConfig
from ..config.names import Edges, Norm
from ..errors import UsageError
from .console import folded, write, write_json
from .options import EDGES_HELP, GRAPH_HELP, MODEL_HELP, OneProcess, complete, config_options, integers, output_options
from .source import load

if TYPE_CHECKING:
    import torch

    from ..experiment.prediction import KeptRun
    from ..graph import Graph

    Model = torch.nn.Module | Callable[[], torch.nn.Module]

NOT_EXACT = 6  # exit code
NO_LABELS = 4  # columns of a model on a graph without labels

FIRST = "config ranks replication model hidden layers dropout operator features edges seed"


@click.command(cls=OneProcess, first=FIRST, tables=f"{GRAPH_HELP}\n{EDGES_HELP}\n{MODEL_HELP}")
@config_options(VerifyConfig)
@click.argument("made", required=False, default="", metavar="[RUN | FILE.py:FUNCTION]", shell_complete=complete)
@output_options
def verify(graph: str, config: VerifyConfig, made: str, as_json: bool) -> int:
    """Check that a model computes the same on any number of ranks, and name the module that does not.

    \b
      spgnn verify sbm:n=200,seed=0 --model gat --dropout 0.5
      spgnn verify wordnet runs/out/demo
      spgnn verify sbm:n=200,seed=0 mine.py:make_model

    The model is of family --model, of the folder RUN of a training, or what FUNCTION(f_in, n_classes) of a Python file
    returns: any torch module that is called as model(A, X). It runs on ranks that are threads, in float64, on random
    partitions; a small GRAPH is enough. Outputs of modules, loss, gradients and buffers are compared with one rank, of
    --task links those of a random split. The exit code is 6 where one differs by more than 1e-10 (relative).
    """
    from ..exactness.verify import verify as verify_model
    from ..graph import split_as
    from ..layers.registry import reads_relations, with_relations

    sizes, c = integers("ranks", config.ranks), config.replication
    is_learned, task = config.features == EMBEDDING, "links" if config.on == "links" else "nodes"
    loaded = load(graph, config.format, "" if is_learned else config.features, config.labels)
    family = _run_of(made).config.model if made and ".py:" not in made else config.model
    if task == "links":
        loaded = replace(loaded, X=None, feature_names=None) if is_learned else loaded
        loaded = split_as(loaded.with_edges(config.edges), "auto", config.seed, reads_relations(family))
    else:
        loaded = with_relations(loaded, family)
    model, operator, norm, edges = _model(made, loaded, config)
    loaded = loaded if task == "links" else loaded.with_edges(edges)
    options: dict[str, Any] = {"operator": operator, "feature_norm": norm, "task": task}
    found = verify_model(model, loaded, sizes, replication=c, seed=config.seed, **options)
    if as_json:
        for row in found.rows:
            write_json(asdict(row))
        write_json({"ok": found.ok, "slope": found.slope, "finding": found.finding and asdict(found.finding)})
    else:
        write("\n".join(map(folded, str(found).split("\n"))))
    return 0 if found.ok else NOT_EXACT


def _model(made: str, graph: Graph, config: VerifyConfig) -> tuple[Model, Norm, str, Edges]:
    """Return a model, or a function that makes it, its operator, and how it uses features and edges."""
    from ..graph import count_classes, targets_of
    from ..layers.registry import ModelSpec, operator_of

    n_classes = count_classes(targets_of(graph, config.on))
    sizes, norm, edges = (graph.n_features, n_classes or NO_LABELS), config.feature_norm, config.edges
    if graph.links is not None:
        sizes = graph.n_features or config.hidden, config.hidden
    given = [f.name for f in fields(ModelConfig) if getattr(config, f.name) != f.default]
    if made and given:
        raise UsageError(f"--{given[0].replace('_', '-')} has no effect on {made}; omit it")
    if not made:
        spec = ModelSpec.of(config, *sizes, graph)
        model, operator = spec.build(), operator_of(config)
    elif ".py:" in made:
        function = _function(made)
        model, operator = lambda: function(*sizes), "gcn" if config.operator == "auto" else config.operator
    else:
        run = _run_of(made)
        run.state.pop("embedding", None)
        model, operator = run.model(), operator_of(run.config, run.spec)
        norm, edges = run.config.feature_norm, run.config.edges
    return model, operator, norm, edges


def _run_of(made: str) -> KeptRun:
    """Return the run of a folder."""
    from ..experiment.prediction import KeptRun

    return KeptRun.read(Path(made))


def _function(made: str) -> Callable[[int, int], torch.nn.Module]:
    """Return a function of a Python file, FILE.py:FUNCTION. Raises: UsageError where there is none."""
    from importlib.util import module_from_spec, spec_from_file_location

    file, _, name = made.rpartition(":")
    if not Path(file).is_file():
        raise UsageError(f"{made}: {file} is no file; expected FILE.py:FUNCTION, or the folder of a run")
    spec = spec_from_file_location(Path(file).stem, file)
    assert spec is not None and spec.loader is not None, "a .py file has both"
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{made}: {file} has no function {name!r}; expected one of (f_in, n_classes), of a model")
    return function
