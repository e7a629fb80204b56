"""Samplers by name, the built-in ones and those of users; the options that a config has for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..config.fields import Registry, check_known, keyword_options
from ..config.groups import SamplerConfig
from ..config.names import SAMPLERS as BUILT_IN
from ..errors import SamplerError, SpgnnError, UsageError
from ..graph import Graph
from .graph_arrays import GraphArrays, InducedSampler, graph_arrays
from .sample import Sampler

NONE = "none"  # --sampler of a training on all nodes at once


@dataclass(frozen=True, slots=True)
class SamplerKind:
    """Samplers of one name: make(graph, **options) -> Sampler.

    options        name -> default.
    reads_targets  make takes train_N after the graph: the nodes from which the sampler starts.
    """

    name: str
    make: Callable[..., Sampler]
    options: Mapping[str, Any]
    reads_targets: bool = False


SAMPLERS: Registry[SamplerKind] = Registry("sampler", BUILT_IN, "@spgnn.sampler('mine')")


def register(name: str, make: Callable[..., Sampler], signature_of: Callable | None = None) -> None:
    """Add make(graph, *, options) -> Sampler to SAMPLERS; its keywords are the options of the sampler.

    Args:   signature_of  whose keywords they are; None: those of make.
    Raises: UsageError if the name is no text, or built in.
    """
    SAMPLERS.check_name(name)
    reads_targets = "train_N" in inspect.signature(make).parameters
    SAMPLERS[name] = SamplerKind(name, make, keyword_options(signature_of or make), reads_targets)


def make_sampler(
    name: str, graph: Graph | GraphArrays, options: Mapping[str, Any] | None = None, train_N: np.ndarray | None = None
) -> Sampler:
    """Return the sampler of a name for a graph.

    Args:   options  of the sampler, see SAMPLERS[name].options; one that is missing has its default.
            train_N  (N,) bool, training nodes with a label, for samplers that start from them; None: by the graph's split.
    Raises: UsageError for a name or an option that is not known, and for a value that the sampler refuses.
    """
    kind, options = SAMPLERS.find(name), dict(options or {})
    check_known(f"sampler {name!r}", options, kind.options)
    missing = [option for option, default in kind.options.items() if default is inspect.Parameter.empty]
    if missing := [option for option in missing if option not in options]:
        raise UsageError(f"sampler {name!r} needs the option {missing[0]!r}")
    return kind.make(graph, train_N, **options) if kind.reads_targets else kind.make(graph, **options)


def options_of(config: SamplerConfig) -> dict[str, Any]:
    """Return the options of the sampler that a config names, by keyword.

    Raises: UsageError for a name that is not known, and for an option that is given but of other samplers.
    """
    check_options(config)
    kind, defaults = SAMPLERS[config.sampler], {field.name: field.default for field in fields(SamplerConfig)}
    if config.sampler in SAMPLERS.built_in:
        given = {name: getattr(config, name) for name in kind.options if hasattr(config, name)}
        return given | ({"batch": kind.options["batch"]} if given.get("batch") == 0 else {})
    # The default of a user's function holds unless the option was given.
    names = [name for name in kind.options if name in defaults]
    return {name: value for name in names if (value := getattr(config, name)) != defaults[name]}


def check_options(config: SamplerConfig) -> None:
    """Raise UsageError for a sampler that is not known, and for an option that it does not have."""
    names = [name for name in SAMPLERS if name != NONE]
    if config.sampler != NONE:
        SAMPLERS.find(config.sampler, "--sampler")
    for field in fields(SamplerConfig):
        if field.name == "sampler" or getattr(config, field.name) == field.default:
            continue
        flag = "--" + field.name.replace("_", "-")
        takers = [name for name in names if field.name in SAMPLERS[name].options]
        if config.sampler == NONE:
            if (field.name, getattr(config, "on", "")) == ("batch", "links"):
                continue
            wanted = " or ".join(takers) if takers else "NAME"
            raise UsageError(f"{flag} requires --sampler {wanted}; omit it to train on all nodes at once")
        if takers and config.sampler not in takers:
            known = " and ".join(takers)
            raise UsageError(f"{flag} is an option of --sampler {known}; omit it with --sampler {config.sampler}")


def sampler(name: str) -> Callable:
    """Register f(graph, rng, *, options) -> nodes as the sampler of a name; the subgraph is the one that they induce.

        @spgnn.sampler("hubs")
        def hubs(graph, rng, *, budget=100):
            degree_N = np.diff(graph.A.indptr)
            return rng.choice(graph.n_nodes, budget, p=degree_N / degree_N.sum())

    nodes are integers of 0 to N - 1 in any order, duplicates allowed. rng is a numpy Generator that depends on the seed
    and the number of the subgraph alone; f must draw nothing elsewhere, and may be called by several threads at once.
    A name can be registered again, except a built-in one.
    """

    def decorate(f: Callable) -> Callable:
        register(name, lambda graph, **options: UserSampler(name, f, graph, options), f)
        return f

    return decorate


class UserSampler(InducedSampler):
    """The sampler of a user's function, whose result is checked.

    Raises: SamplerError, naming the sampler and the subgraph, where f fails or returns something else than nodes.
    """

    def __init__(self, name: str, f: Callable, graph: Graph, options: Mapping[str, Any]):
        if not isinstance(graph, Graph):
            raise UsageError(f"sampler {name!r} is given a {type(graph).__name__}; expected a Graph")
        self.user_graph = graph.in_use()
        super().__init__(graph_arrays(self.user_graph))
        self.name, self.f, self.options = name, f, dict(options)

    def draw(self, seed: int, index: int) -> np.ndarray:
        rng = np.random.Generator(np.random.Philox(key=np.array([seed, index], np.uint64)))
        where = f"sampler {self.name!r}, subgraph {index}"
        try:
            drawn = np.asarray(self.f(self.user_graph, rng, **self.options))
        except (SpgnnError, MemoryError):
            raise
        except Exception as error:
            raise SamplerError(f"{where}: {type(error).__name__}: {error}") from error
        if drawn.dtype.kind not in "iu" and drawn.size:
            raise SamplerError(f"{where}: got nodes of {drawn.dtype}; expected integers")
        outside = (drawn < 0) | (drawn >= self.graph.N)
        if outside.any():
            raise SamplerError(f"{where}: node {drawn[outside][0]} is not one of 0 to {self.graph.N - 1}")
        return np.ascontiguousarray(drawn, np.int64)
