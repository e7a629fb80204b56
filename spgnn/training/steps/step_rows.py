"""StepRows: the operator, input and rows of the loss of a training step, pruned where that saves work.

Shapes: n own rows, L layers, F and C widths of a layer.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from ...analysis.training_memory import epoch_parts
from ...config import TrainConfig
from ...cost.memory import MEMORY_SHARE
from ...cost.seconds import HostMemory, choose_pruning
from ...dist import Communicator
from ...distgraph import DistGraph
from ...errors import SpgnnError, UsageError
from ...layers.stack import layers_of, norms_of, pruned_hops
from ...machine import free_address_bytes, host_id, memory_bytes, rss_bytes
from ...spmm.dry.dry import DryRun, dry_run
from ...spmm.dry.dry_operator import Setting, setting_of
from ...spmm.operator.counts import Rows, sent_bytes
from ...spmm.operator.dist_spmm import DistSpMM
from ...spmm.operator.features import AnyRows, SparseRows
from ...spmm.operator.pruning import PrunedSpMM, needed_rows
from ..scorer import make_cached_products


class StepRows:
    """Operator, input and rows of the loss of a training step.

    A, X      operator and input of the model: the DistGraph's, or pruned ones.
    rows      own rows of which a step computes logits, (n_L,) indices; None: all.
    why       the reason for pruning or for all rows.
    problem   why the model has no dry run; "" if it has one.
    Raises: UsageError where prune = "always" and the layers or an X with a gradient do not allow it.
    Making it is collective; so is the first use of what needs `run`.
    """

    def __init__(self, dgraph: DistGraph, model: torch.nn.Module, config: TrainConfig, split_n: np.ndarray):
        assert dgraph.X is not None  # a training needs features
        self._runs: dict[Setting | str, DryRun | None] = {**make_cached_products(dgraph, model)}
        self.A: DistSpMM | PrunedSpMM = dgraph.A
        self.X: AnyRows = dgraph.X
        self.rows: np.ndarray | None = None
        operators = [dgraph.A.with_norm(norm) for norm in norms_of(model)]
        # Of the layers; the one of the cached A X first.
        self.operators = sorted(operators, key=lambda A: A.kept is None)
        self.dgraph, self.model, self.problem = dgraph, model, ""
        self.train_n = (split_n == 0) & dgraph.has_label_n
        self.why = "all rows: prune = never"
        if config.prune != "never":
            self._prune(config)

    @property
    def is_pruned(self) -> bool:
        """Whether a step computes some rows only."""
        return isinstance(self.A, PrunedSpMM)

    def _prune(self, config: TrainConfig) -> None:
        """Prune rows if the layers allow it and it saves enough work or prune = "always". Collective."""
        dgraph, is_auto, (hops, problem) = self.dgraph, config.prune == "auto", self._hops()
        full, pruned, masks = self.run, None, [self.train_n] * (len(hops) + 1)
        setting = lambda run, masks: pruned_setting(run, self.operators[0], self.X, masks, hops)
        if full is not None and not problem:
            pruned, problem = self._agreed(setting(full, masks))
        if full is None or pruned is None:
            self.why = f"all rows: {problem}"
            if not is_auto:
                raise UsageError(f"prune = always is not possible: {problem}; use prune = auto")
            return
        work = self._work(full, [np.ones_like(self.train_n)] * len(masks))
        is_random = bool(getattr(self.model, "is_random", True))
        choose = lambda less: choose_pruning(work, less, config.eval_every, is_random, is_auto)
        # Each layer has at least the rows of the last. If even these save too little, the layers are not counted.
        least = self._work(pruned, masks)
        if not choose(least)[0]:
            self.why = f"all rows: those that train take {least / max(work, 1):.0%} of their multiply-adds or more"
            return
        masks = needed_rows(dgraph.A, self.train_n, hops)
        pruned = pruned.on(setting(full, masks).counts)
        saves, self.why = choose(self._work(pruned, masks))
        if saves and is_auto and dgraph.A.device.type == "cpu":
            memory = step_memory(dgraph.comm, pruned, full)
            if not memory.fits:
                self.why = (
                    f"all rows: with pruned steps a host would need {memory.pruned / 1e9:.1f} GB, "
                    f"over {MEMORY_SHARE:.0%} of its {memory.available / 1e9:.1f} GB"
                )
            saves = memory.fits
        if saves:
            self._take(full, masks, hops)

    def _hops(self) -> tuple[tuple[int, ...], str]:
        """Return the hops of the layers and ""; or () and why rows cannot be pruned. Collective."""
        if getattr(self.dgraph.X, "requires_grad", False):
            return (), "X requires a gradient"
        if self.dgraph.on == "edges":
            return (), "targets are edges"
        return pruned_hops(self.model, self.run)

    def _take(self, run: DryRun, masks: list[np.ndarray], hops: tuple[int, ...]) -> None:
        """Make the operators of pruned steps; run: with all rows. Collective."""
        whole = [self._whole(number) for number in range(1, len(hops) + 1)]
        self.A = A = PrunedSpMM(self.dgraph.A, self.X, masks, run.layer(1).is_cached, whole, hops)
        self.X, self.rows, first = A.X, np.flatnonzero(self.train_n), A.layers[0]
        is_read = any(product.is_cached for product in run.layer(1).products)
        if is_read and not A.is_kept and first.fixed_input is not None:  # beside products that are not cached
            first.fixed_input.make(first)
        for layer in run.layers:
            if any(product.kind == "ghosts" for product in layer.exchanges):
                _ = self.layer(layer.number).ghost_plan  # made at set-up, so that its rows are known

    @property
    def run(self) -> DryRun | None:
        """The dry run of the model on this rank, without pruned rows; None where a rank has none. Collective."""
        if "all" not in self._runs:  # functools.cached_property would have ranks that are threads wait for one another
            self._runs["all"], self.problem = self._agreed(self._setting(None))
        return self._runs["all"]

    @property
    def step_run(self) -> DryRun | None:
        """The dry run with the rows that a step computes. Collective where `run` is."""
        return self.own_run() if self.is_pruned else self.run

    def own_run(self) -> DryRun:
        """Return the dry run of a step on this rank alone. Raises: see dry_run."""
        return self._made(self._setting(self.A if isinstance(self.A, PrunedSpMM) else None))

    def layer(self, number: int) -> DistSpMM:
        """Return the operator of a layer, which may compute some rows only."""
        return self.A.layers[number - 1] if isinstance(self.A, PrunedSpMM) else self._whole(number)

    def of(self, values_n: torch.Tensor) -> torch.Tensor:
        """Return the values of the rows of which a step computes logits."""
        return values_n if self.rows is None else values_n[torch.from_numpy(self.rows)]

    def prepare_adjoint(self) -> None:
        """Make the transposes that backward multiplies with."""
        if isinstance(self.A, PrunedSpMM) and self.run is not None:
            layers = [self.run.layer(number) for number in range(1, len(self.A.layers) + 1)]
            self.A.prepare_adjoint([bool(layer.passes("backward").exchanges) for layer in layers])
            return
        for A in self.operators:
            A.prepare_adjoint()

    def sent_bytes(self) -> int | None:
        """Return the predicted bytes that this rank sends in one training epoch; None without a dry run. Collective."""
        run = self.step_run
        if run is None:
            return None
        products = run.passes("forward", "backward").exchanges
        return sum(sent_bytes(self.layer(p.layer or 0), p.width, p.pass_name, cast(Rows, p.kind)) for p in products)

    def _whole(self, number: int) -> DistSpMM:
        """Return the operator of a layer of the model, with all rows."""
        layers = layers_of(self.model)
        if not 1 <= number <= len(layers):  # of a Stack in a layer, or outside of layers
            return self.operators[0]
        return self.dgraph.A.with_norm(getattr(layers[number - 1], "operator", None))

    def _setting(self, step: PrunedSpMM | None) -> Setting:
        n_train = int(self.train_n.sum()) if self.dgraph.task != "classes" else None
        assert self.dgraph.X is not None  # see __init__
        return setting_of(self.operators[0], self.dgraph.X, step, n_train)

    def _agreed(self, setting: Setting) -> tuple[DryRun | None, str]:
        """Return the dry run of a setting, or None where a rank has none, and why. Collective."""
        run, problem = None, ""
        try:
            run = self._made(setting)
        except SpgnnError as error:  # training raises it too, unless it is a DryRunError
            problem = str(error)
        problem = next((said for said in self.dgraph.comm.all_gather_json(problem) if said), "")
        return (None if problem else run), problem

    def _made(self, setting: Setting) -> DryRun:
        """Return the dry run of a setting, made once whatever its counts are."""
        run = self._runs.get(setting)
        if run is None:
            run = self._runs[setting] = dry_run(self.model, setting, (self.dgraph,))
        return run.on(setting.counts)

    def _work(self, run: DryRun, masks: list[np.ndarray]) -> float:
        """Return the multiply-adds of one forward pass, all ranks; masks: the rows T_0 ... T_L of its layers."""
        forward, total = run.passes("forward"), np.zeros(1)
        total += forward.multiply_adds
        for product in forward.multiplied:
            layer = product.layer or 0
            blocks = self._whole(layer).blocks
            lengths_n = np.diff(blocks.A_oo.indptr) + np.diff(blocks.A_og.indptr)
            total += int(lengths_n[masks[layer]].sum()) * product.width
        self.dgraph.comm.all_reduce(total)
        return float(total[0])


def pruned_setting(run: DryRun, A: DistSpMM, X: AnyRows, masks: list[np.ndarray], hops: Sequence[int]) -> Setting:
    """Return the setting of pruned steps before their operators are made; at most as many rows are sent as without.

    Args: run  of all rows; A: operator of the first layer, which has A X; masks: of needed_rows.
    """
    full, is_cached = run.setting, run.layer(1).is_cached
    counts = full.counts | {f"T{number}": int(mask.sum()) for number, mask in enumerate(masks)}
    own_n, ghost_n = (np.diff(block.indptr) for block in (A.blocks.A_oo, A.blocks.A_og))
    for number, mask in enumerate(masks[1:], start=1):
        counts |= {f"{name}{number}": full.counts[name] for name in ("s", "g", "f", "edges", "sender_nnz")}
        counts |= {f"own_nnz{number}": int(own_n[mask].sum()), f"ghost_nnz{number}": int(ghost_n[mask].sum())}
    if is_cached:
        counts["T0"] = full.counts["n"]
    left, read_n = (A.kept, masks[1]) if is_cached else (X, masks[0])
    if isinstance(left, SparseRows):
        counts["step_nnz"] = int(np.diff(left.csr.indptr)[read_n].sum())
    return replace(full, steps=tuple(hops), step_is_cached=is_cached, counts=counts)


def step_memory(comm: Communicator, pruned: DryRun, full: DryRun) -> HostMemory:
    """Return what the hosts need and have; the same on all ranks. Collective.

    What processes hold now is measured; what steps and evaluations add is predicted.
    """
    added = [sum(epoch_parts(run).values()) for run in (pruned, full)]
    mine = [host_id(), os.getpid(), rss_bytes(), memory_bytes(), free_address_bytes(), *added]
    return tightest(comm.all_gather_json(mine))


def tightest(ranks: list[list]) -> HostMemory:
    """Return the memory of the host, or of the process with a limit, that has least left.

    Args: ranks  host, process, bytes that it holds, bytes of the host, bytes that the process may map (None: any) and
                 what steps add, pruned and of all rows; of each rank.
    """
    held, host_bytes, pruned, full = {}, {}, Counter(), Counter()
    for host, process, rss, memory, _, with_pruned, with_full in ranks:
        held[host, process], host_bytes[host] = rss, memory
        pruned[host] += with_pruned
        full[host] += with_full
    for (host, _), rss in held.items():
        pruned[host] += rss
        full[host] += rss
    found = [HostMemory(pruned[host], full[host], memory) for host, memory in host_bytes.items()]
    for _, _, rss, _, free, with_pruned, with_full in ranks:
        if free is not None:
            found.append(HostMemory(rss + with_pruned, rss + with_full, rss + free))
    return min(found, key=lambda of: of.left)
