"""verify: whether a model computes the same on any ranks, and which module does not.

Shapes: N nodes, n own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..data import load_graph
from ..errors import SpgnnError, UsageError, check_integer
from ..graph import Graph, check_is_graph, split_links
from ..layers.foreign.wrap import check_called
from .compared import CHECKS, NONE, Checked, Compared, Finding, Verification, compare, first_backward, first_forward
from .on_disk import finding_on_disk, on_disk
from .outside import outside
from .reasons import DECODER, OWN_BUFFER, Fault, why_backward, why_forward, why_loss
from .watched import ONE, Loss, RankPass, Shift, Task, World, both_ways, maker, one_way, random_world, run_world

STEPS = (1e-6, 1e-8)  # of differences of the loss
SLOPE_TOLERANCE = 1e-5  # of a gradient against differences of the loss


@dataclass(frozen=True)
class Case:
    """One world of ranks on one graph, compared with one rank: evaluation and training; error: what it raised."""

    world: World
    task: Task
    edges: str
    compared: dict[str, Compared]
    error: Exception | None = None

    @property
    def kind(self) -> tuple[str, bool]:
        """Edges, and whether it is 1.5D."""
        return self.edges, self.world.replication > 1

    def differences(self) -> dict[str, float]:
        """Return the largest difference of each check that was compared."""
        found = {name: of.outputs for name, of in self.compared.items()}
        if trained := self.compared.get("training"):
            found |= {"loss": trained.loss.size, "gradient": trained.gradient}
            found["buffers"] = max((of.size for of in trained.buffers.values()), default=0.0)
        return found


def verify(
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    graph: Graph | str,
    ranks: Sequence[int] = (1, 2, 3, 5),
    *,
    loss: Loss | str | None = None,
    replication: int = 2,
    tolerance: float = 1e-10,
    seed: int = 0,
    **options: Any,
) -> Verification:
    """Run a model on thread ranks in float64 and compare all that it computes with one rank: max |x - x_1| / max |x_1|.

        print(spgnn.verify(Stack(GCN(16, 32), GCN(32, 4), dropout=0.5), "sbm:n=200,seed=0"))

    Compared are what every module returns, in evaluation and in a training pass with dropout, the loss, the gradients of
    parameters and rows, and the buffers afterwards; and on one rank the gradient with differences of the loss, each
    wrapped module with itself, called with the edges of the whole graph, and a Stack that trains out of core with itself
    in parts on disk. The first module that differs is named, with the likely reason, which further runs on changed graphs
    and inputs decide.
    Args:   model        a module called as model(A, X), wrapped ones too, or a function that makes one; it stays as it is.
            graph        a Graph, or GRAPH of the command line. All modules' outputs are held: a small graph is enough.
            ranks        numbers of ranks, each with a random partition. Of a symmetric graph one more run has some edges
                         in one direction alone.
            loss         (Z, y) -> sum over rows with a label, as `train` has it; None: a fixed function of all rows of Z, of
                         links bce. Of links bpr and softmax too, or (positive_p, negative_pk) -> sum over positives.
            replication  c of one more run in 1.5D, on c^2 ranks; 1: none.
            tolerance    largest relative difference; of 1e-4 of the largest number of a call, or gradient, where one is smaller.
            seed         of partitions and dropout.
            options      of distribute, such as operator and scheme; task="links": the loss of links, which `split_links`
                         splits unless they are, with learned rows where the graph has no X.
    Raises: UsageError and ShapeError of the model itself on one rank.
    """
    for size in ranks:
        check_integer("ranks", size, 1)
    check_integer("replication", replication, 1)
    graph = load_graph(graph) if isinstance(graph, str) else graph
    check_is_graph(graph)
    on = options.pop("task", "nodes")
    if on == "links":
        graph, replication = split_links(graph, seed=seed) if graph.links is None else graph, 1
    elif on != "nodes" or isinstance(loss, str):
        raise UsageError(f"task = {on!r}, loss = {loss!r}; names of losses, and no other tasks, are of task='links'")
    elif graph.X is None:
        raise UsageError(f"{graph.name} has no features; load_graph(..., features='ones') gives it some")
    else:
        graph = replace(graph, links=None)
    sizes = [size for size in ranks if size > 1]
    with torch.random.fork_rng(devices=()):  # a model may draw from torch's generator
        return _verified(Task(maker(model), {}, graph.in_use(), loss, seed, options), sizes, replication, tolerance)


def _verified(task: Task, sizes: list[int], replication: int, tolerance: float) -> Verification:
    check_called(model := task.make())
    task = replace(task, state=model.double().state_dict())
    passes = _of_one(task)
    slope, moved, one = _slope(task)
    cases = _cases(task, passes, sizes, replication, tolerance)
    finding = _finding(cases, passes, tolerance)
    apart, wrong = outside(task, passes["evaluation"])
    from_disk = on_disk(task, passes, tolerance) if finding is None else None
    finding = finding or wrong or finding_on_disk(from_disk, tolerance)
    if finding is None and slope > SLOPE_TOLERANCE:
        finding = _wrong_slope(moved, one, slope)
    rows = tuple(
        Checked(case.world.ranks, case.world.replication, case.edges, **case.differences(), note=str(case.error or ""))
        for case in cases
    )
    rows += () if from_disk is None else (from_disk,)
    return Verification(task.graph.name, rows, finding, slope, tolerance, apart)


def _of_one(task: Task) -> dict[str, RankPass]:
    """Return the evaluation and the training pass of one rank."""
    return {name: run_world(ONE, replace(task, is_training=name == "training"))[0] for name in CHECKS[:2]}


def _cases(task: Task, passes: dict[str, RankPass], sizes: list[int], c: int, tolerance: float) -> list[Case]:
    """Return all worlds, compared: of the sizes, in 1.5D, and with one-way edges."""
    n, seed = task.graph.n_nodes, task.seed
    cases = [_case(random_world(n, size, 1, seed), task, passes, "given", tolerance) for size in sizes]
    if c > 1 and sizes:
        cases.append(_case(random_world(n, c * c, c, seed), task, passes, "given", tolerance))
    if sizes and task.graph.is_symmetric and task.graph.nnz:
        turned = replace(task, graph=one_way(task.graph, seed))
        cases.append(_case(random_world(n, max(sizes), 1, seed), turned, _of_one(turned), "one-way", tolerance))
    return cases


def _case(world: World, task: Task, passes: dict[str, RankPass], edges: str, tolerance: float) -> Case:
    compared: dict[str, Compared] = {}
    try:
        for name, one in passes.items():
            found = run_world(world, replace(task, is_training=name == "training"))
            compared[name] = compare(one, found, tolerance)
    except Exception as error:  # it is what is reported
        return Case(world, task, edges, compared, error)
    return Case(world, task, edges, compared)


def _finding(cases: list[Case], passes: dict[str, RankPass], tolerance: float) -> Finding | None:
    """Return the first thing that differs: by the order of CHECKS, then of worlds."""
    for case in cases:
        if case.error is not None and not (case.world.replication > 1 and isinstance(case.error, SpgnnError)):
            text = f"{type(case.error).__name__}: {case.error}"
            module = getattr(case.error, "module", "")
            return Finding(module, "error", np.inf, (case.world.ranks,), None, None, text)
    kinds = [("given", False), ("one-way", False), ("given", True)]  # in 1D on the graph as it is, first
    for kind in kinds:
        for check in CHECKS:
            failing = [case for case in cases if case.differences().get(check, 0) > tolerance]
            first = [case for case in failing if case.kind == kind]
            if first:
                return _found(check, first[0], failing, passes, tolerance)
    return None


def _found(check: str, case: Case, failing: list[Case], passes: dict[str, RankPass], tolerance: float) -> Finding:
    """Return the Finding of a check that fails in a case, and in others."""
    ranks = tuple(sorted({of.world.ranks for of in failing}))
    name = "evaluation" if check == "evaluation" else "training"
    compared, task = case.compared[name], replace(case.task, is_training=name == "training")
    one = (_of_one(case.task) if case.edges == "one-way" else passes)[name]
    fault = Fault(task, case.world, tolerance, {of.kind for of in failing})
    if check == "loss" and task.graph.links is not None and not callable(task.loss):
        return Finding("decoder", check, compared.loss.size, ranks, None, None, DECODER)
    if check == "loss":
        return Finding("loss", check, compared.loss.size, ranks, None, None, why_loss(fault))
    if check == "buffers":
        buffer, of = next((key, of) for key, of in compared.buffers.items() if of.size > tolerance)
        return Finding(buffer.rpartition(".")[0], check, of.size, ranks, None, buffer, OWN_BUFFER)
    if check == "gradient":
        wrong = lambda side: {k for k, of in enumerate(compared.calls) if getattr(of, side).size > tolerance}
        names = [key for key, of in compared.gradients.items() if of.size > tolerance]
        call, parameter = first_backward(one.calls, wrong("input_gradients"), wrong("output_gradients"), names)
        rows = compared.calls[call].input_gradients if call is not None else NONE
        size = compared.gradients[parameter].size if parameter else rows.size or compared.gradient
        module = (parameter or "").rpartition(".")[0] if call is None else one.calls[call].path
        return Finding(module, check, size, ranks, _id(task.graph, rows.node), parameter, why_backward(fault))
    call = one.calls[first_forward(one.calls, compared, tolerance)]
    of = compared.calls[call.number].outputs
    return Finding(call.path, check, of.size, ranks, _id(task.graph, of.node), None, why_forward(fault, call))


def _id(graph: Graph, node: int | None) -> int | str | None:
    """Return what the user calls a node."""
    return node if node is None or graph.ids is None else graph.ids[[node]].tolist()[0]


def _slope(task: Task) -> tuple[float, Task, RankPass]:
    """Return how far the gradient of one rank is from differences of its loss, along a random direction of all parameters.

    The task and its pass, too: at weights that are moved at random, as a bias of 0 is where ReLU has no slope.
    """
    rng = np.random.default_rng(task.seed)
    model = task.make()  # a weight that modules share has several names
    same = {name: weight for name, weight in model.named_parameters(remove_duplicate=False) if weight.requires_grad}

    def draw() -> dict[str, torch.Tensor]:
        drawn = {weight: torch.from_numpy(rng.standard_normal(weight.shape)) for weight in model.parameters()}
        return {name: drawn[weight] for name, weight in same.items()}

    moved = lambda state, along, step: state | {name: state[name] + step * V for name, V in along.items()}
    task = replace(task, state=moved(task.state, draw(), 0.1), is_training=True)
    one, along = run_world(ONE, task)[0], draw()
    slopes = {name: (along[name].numpy(), G) for name, G in one.gradients.items()}
    return _apart(lambda step: replace(task, state=moved(task.state, along, step)), slopes), task, one


def _apart(moved: Callable[[float], Task], slopes: dict[str, tuple[np.ndarray, np.ndarray]]) -> float:
    """Return how far gradients are from the difference of the losses of two tasks; slopes: name -> direction, gradient.

    Of two steps the better one: within a short one no ReLU turns, a long one is not lost in rounding.
    """
    expected = sum(float((along * G).sum()) for along, G in slopes.values())
    scale = max((float(np.linalg.norm(G)) for _, G in slopes.values()), default=0.0) or 1.0
    up_down = ([run_world(ONE, moved(sign * step))[0].loss for sign in (1, -1)] for step in STEPS)
    return min(abs((up - down) / (2 * step) - expected) / scale for step, (up, down) in zip(STEPS, up_down))


def _wrong_slope(task: Task, one: RankPass, slope: float) -> Finding:
    """Return the Finding of a gradient that does not fit the loss: the call nearest to the loss."""
    rng = np.random.default_rng(task.seed)

    def is_wrong(number: int, is_output: bool) -> bool:
        for place, rows in enumerate(one.calls[number].outputs if is_output else one.calls[number].inputs):
            if rows.gradient is None:
                continue
            along = rng.standard_normal(rows.value.shape) * (rows.value != 0)  # what is dropped stays 0
            moved = lambda step, V=along: replace(
                task, shift=Shift(one.calls[number].key, place, is_output, lambda *_: step * V)
            )
            if _apart(moved, {"": (along, rows.gradient)}) > SLOPE_TOLERANCE:
                return True
        return False

    numbers = range(len(one.calls))
    inputs, outputs = ({k for k in numbers if is_wrong(k, side)} for side in (False, True))
    call, _ = first_backward(one.calls, inputs, outputs, ())
    module = one.calls[call].path if call is not None else ""
    reason = "its backward is not the gradient of its forward"
    both = both_ways(task.graph)
    if both is not None and _slope(replace(task, graph=both))[0] <= SLOPE_TOLERANCE:
        reason += ": it multiplies with A in place of A', which is right for a symmetric graph alone"
    return Finding(module, "slope", slope, (1,), None, None, reason)
