"""Where a number that is not finite comes from: a pass that failed runs again, once, and every tensor in it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ..dist import Communicator, SelfCommunicator
from ..distgraph import DistGraph
from ..errors import NumericalError

ALONE = SelfCommunicator()


@contextmanager
def naming_source(model: torch.nn.Module, dgraph: DistGraph, run: Callable[[], Any]) -> Iterator[None]:
    """Add to a NumericalError, which all ranks raise, where the number comes from. Collective where it is raised."""
    try:
        yield
    except NumericalError as problem:
        raise NumericalError(f"{problem}{source_of(model, dgraph.node_n, run, dgraph.comm)}") from None


def source_of(model: torch.nn.Module, node_n: np.ndarray, run: Callable[[], Any], comm: Communicator = ALONE) -> str:
    """Return ": " and the first number that is not finite, with its module, rank and original node; "" without one.

    Weights and buffers come first, then what modules return in `run`, then the gradients by that, in the order of the
    pass; of ranks that meet one at the same place the lowest, which is named if there are several.

    Args: node_n  of the rows of a module that is called without an operator.
          run     runs the pass again, with the weights that failed. Collective, as this is.
    """
    lookout = Lookout(node_n)
    for name, value in model.state_dict().items():
        lookout.look(f"weight {name}", value)
    hooks = [module.register_forward_hook(lookout.after(path)) for path, module in model.named_modules()]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    everywhere = enumerate(comm.all_gather_json(lookout.found))
    found = [(place, rank, text) for rank, own in everywhere for place, text in own]
    if not found:
        return ""
    _, rank, text = min(found)
    return f": {text}" + (f", rank {rank}" if comm.size > 1 else "")


class Lookout:
    """Looks at tensors in turn, and notes the first that is not finite: found is [] or [[its place, what it is]]."""

    def __init__(self, node_n: np.ndarray):
        self.found: list[list] = []
        self._node_n, self._looks = node_n, 0

    def look(self, name: str, value, ids: np.ndarray | None = None) -> None:
        """Look at a tensor, of whose rows ids are the nodes."""
        self._looks += 1
        if self.found or not torch.is_tensor(value) or not value.is_floating_point():
            return
        bad = (~torch.isfinite(value.detach())).nonzero()
        if len(bad):
            row, *rest = bad[0].tolist() or [0]
            number = float(value.detach()[tuple(bad[0])])
            ids = self._node_n if ids is None or len(ids) != len(value) else ids
            is_node = " of " in name and len(ids) == len(value)
            where = f" at node {ids[row]}" if is_node else f" at {[row, *rest]}"
            self.found.append([self._looks, f"{name} is {number}{where}"])

    def after(self, path: str) -> Callable:
        """Return a hook that looks at what a module returns, and at its gradient."""

        def hook(module, args, output):
            ids = next((A.out_ids for A in args if not torch.is_tensor(A) and hasattr(A, "out_ids")), None)
            name = f"of {path or 'the model'} ({type(module).__name__})"
            for tensor in output if isinstance(output, tuple) else (output,):
                self.look(f"the output {name}", tensor, ids)
                if torch.is_tensor(tensor) and tensor.requires_grad:
                    tensor.register_hook(lambda G: self.look(f"the gradient of the output {name}", G, ids))

        return hook
