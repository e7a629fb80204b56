"""Whether a training fits in the memory of a rank, or else can run out of core, and what it needs then.

Shapes: N nodes, n own nodes of a part, g of its halo, k parts, P ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from ..analysis.epoch import without_values
from ..analysis.training_memory import TRAINING_BYTES, gigabytes
from ..config import Distribution, TrainConfig
from ..config.names import Norm
from ..cost.machines import load_machine
from ..cost.memory import OWNER_BYTES
from ..cost.workload import HALO
from ..errors import GraphError, ResourceError, SpgnnError, UsageError
from ..graph import Graph
from ..layers.registry import FAMILIES, ModelSpec, operator_of
from ..partition import PartitionFolder
from ..spmm.kernels.buffers import sum_dtype
from ..training.parts.average_options import check_average
from ..training.parts.pass_needs import LEFT_BYTES, Needs
from ..training.parts.passes import passes_of, written_by
from ..training.parts.scratch import check_room
from .memory_check import GraphSizes, check_fits, memory_of_parts

WEIGHTS = 10  # times the bytes of the weights: gradients, sums of them, moments, and the weights that are kept


class PartNeeds:
    """The bytes of a rank that trains out of core with some options, by the sizes of its parts.

    fixed   what it takes whatever the parts are.
    Raises: UsageError for a model, labels or options that are not trained out of core.
    """

    def __init__(self, sizes: GraphSizes, config: TrainConfig):
        check_average(replace(config, mode="out-of-core"), takes_memory=True)
        if FAMILIES[config.model].reads or config.on != "nodes":
            what = f"--model {config.model}" if config.on == "nodes" else config.on
            raise UsageError(f"{what} cannot be trained out of core")
        for size, name in ((sizes.n_features, "features"), (sizes.n_classes, "labels")):
            if not size:
                raise GraphError(
                    f"the graph has no {name}; give them with --{name} FILE, of parts to `spgnn partition`"
                )
        dtype = getattr(torch, config.dtype)
        model = ModelSpec.of(config, sizes.n_features, sizes.n_classes).build()
        passes = passes_of(model.to(sum_dtype(dtype)))
        is_sparse = sizes.x_nnz is not None
        written = written_by(passes, sizes.n_features, is_sparse, dtype)
        of_owners = tuple(one.is_own_transpose(operator_of(config), sizes.is_symmetric) for one in passes)
        self.sizes, self.needs = sizes, Needs(passes, written, sizes.n_features, dtype, is_sparse, of_owners)
        process, weights = load_machine(Distribution.machine).process_bytes, sum(w.nbytes for w in model.parameters())
        self.fixed = int(process + TRAINING_BYTES) + LEFT_BYTES + OWNER_BYTES * sizes.n_nodes + WEIGHTS * weights

    def of_part(self, n: int, g: int, nnz: int) -> int:
        """Return the bytes of one part, beside what is fixed."""
        return self.needs.memory(n, g, nnz, 0)

    def of_share(self, k: int, halo: float = HALO) -> int:
        """Return the bytes of one of k parts, beside what is fixed; halo: rows of a part with its halo over its own."""
        n, nnz = -(-self.sizes.n_nodes // k), -(-self.sizes.nnz // k)
        return self.of_part(n, int((halo - 1) * n) if k > 1 else 0, nnz)

    def largest(self, parts: Iterable[dict[str, int]]) -> int:
        """Return the bytes of the largest of some parts, beside what is fixed."""
        return max(self.of_part(of["n"], of["g"], of["nnz"]) for of in parts)

    def check(self, parts: Sequence[dict[str, int]], M: int, home: str) -> None:
        """Raise ResourceError where the largest of all parts needs more than M bytes, or their files more than home has.

        Args: M  0: not bounded; home: the folder of the run, which may not be there yet, or "", that for temporary files.
        """
        if M and (need := self.fixed + self.largest(parts)) > M:
            raise ResourceError(
                f"the largest part needs {gigabytes(need)}, and a rank has {gigabytes(M)}: give more, or partition the "
                "graph into more parts"
            )
        check_room(home, self.needs.disk(*(sum(of[name] for of in parts) for name in ("n", "g", "nnz"))))


def check_memory(given: Graph | PartitionFolder, config: TrainConfig, operator: Norm, P: int, M: int) -> str:
    """Return "" where a training on all nodes fits in M bytes of each of P ranks, else the sum, of one that runs out of core.

    Raises: ResourceError with the sum where it neither fits nor can run out of core.
    """
    try:
        if isinstance(given, Graph):
            check_fits(given, config, operator, P, M)
        else:
            _check_parts(given, config, P, M)
    except ResourceError as problem:
        try:
            PartNeeds(GraphSizes.of_graph(given) if isinstance(given, Graph) else GraphSizes.of_folder(given), config)
        except UsageError as reason:
            raise ResourceError(f"{problem}\n  out of core: {reason}") from None
        return str(problem)
    return ""


def _check_parts(folder: PartitionFolder, config: TrainConfig, P: int, M: int) -> None:
    """Raise ResourceError where a rank with an equal share of parts needs more than M bytes."""
    sizes = GraphSizes.of_folder(folder)
    if (
        config.on != "nodes"
        or FAMILIES[config.model].reads
        or not (sizes.n_features and sizes.n_classes and sizes.hops)
    ):
        return  # see check_rank_fits
    try:
        make = ModelSpec.of(config, sizes.n_features, sizes.n_classes).build
        need = memory_of_parts(sizes, without_values(make), config)(P)
    except SpgnnError:  # of a model that looks at values, or that is refused when it is built
        return
    if need.training > M:
        raise ResourceError(
            f"a rank needs {gigabytes(need.training)} for its parts, and has {gigabytes(M)}; {need.arithmetic()}"
        )
