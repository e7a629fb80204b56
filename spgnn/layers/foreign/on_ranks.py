"""OnRanks: a pass of foreign code over the rows of a rank, in which gathers and scatters by Ends act on the whole graph.

Torch calls OnRanks for each of its functions that the code uses. A gather by sources exchanges rows; a scatter by sources
adds rows up at their owners. Both by targets are local, as a rank has all edges into its rows. Dropout is drawn by
original ids, BatchNorm sums over all ranks, and functions whose results would differ between ranks are refused.
Shapes: m own rows, t own and ghost columns, E edges, F columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ...errors import ShapeError, UsageError
from ...spmm.chains.dropout import drop_rows, is_nothing
from ...spmm.exchange.owners import ToOwners, any_rank, has_other_ranks
from ...spmm.operator.view import LayerView
from . import row_dims
from .ends import WHOLE, Ends, LocalEdges, Role, plain, roles_in
from .mended import MENDED, RANDOM, is_drawn
from .on_ends import ON_ENDS, without_masks

HELD = 2  # tables of gathered rows: a convolution that reads one matrix twice exchanges it once


class OnRanks(TorchFunctionMode):
    """The pass of one module: its operator, its edges, and how many masks it has drawn.

    passing  the edges of the propagate that runs, else None.
    trusted  of the modules that run, the innermost last.
    met      {E: (target, source) original ids of each edge_index of E edges, the graph's and those made of it}, for
             `verify`; None: not noted.
    Args: A      LayerView of the operator without normalisation, with the key of dropout.
          edges  None: of a module without any.
    """

    def __init__(self, A: LayerView, edges: LocalEdges | None = None):
        super().__init__()
        self.A, self.edges = A, edges
        self.passing: Ends | None = None
        self.draw = 0
        self.trusted = [False]  # whether the module that runs is PyG's, whose use of rows is known
        self.met: dict[int, list[np.ndarray]] | None = None
        self._tables: list[tuple[torch.Tensor, int, torch.Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, "t" if func in TRANSPOSES else getattr(func, "__name__", str(func))
        rows = row_dims.marked(args, kwargs)
        if not self.trusted[-1]:
            row_dims.check_row_count(name, args)
        if rows and not self.trusted[-1]:
            row_dims.check(name, args, kwargs)
            if row_dims.is_sum(name, args, kwargs):
                return row_dims.sum_of_ranks(self.A, name, args, kwargs)
        out = self._computed(func, name, types, args, kwargs)
        if not rows or isinstance(out, Ends):
            return out
        if not self.trusted[-1]:
            row_dims.check_is_no_number(name, out)
        if isinstance(out, (int, torch.Size)):
            return self._sizes(func, out, rows[0], args)
        if Ends in types and name in ON_ENDS:  # which marks its rows
            return out
        for part in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(part, torch.Tensor) and not isinstance(part, Ends):
                row_dims.mark(part, row_dims.row_dim_of(name, part, rows[0], args, kwargs), row_dims.row_type(rows[0]))
        return out

    def _sizes(self, func: Any, out: Any, x: torch.Tensor, args: tuple[Any, ...]) -> Any:
        """Return x.size(dim) or x.shape, in which the number of rows of a rank is a RowCount."""
        dim = row_dims.row_dim(x)
        if self.trusted[-1] or func not in SIZES or x is not args[0]:
            return out
        if isinstance(out, torch.Size):
            return torch.Size([row_dims.RowCount(size) if place == dim else size for place, size in enumerate(out)])
        return row_dims.RowCount(out) if len(args) > 1 and args[1] % x.ndim == dim else out

    def _computed(self, func: Any, name: str, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in MENDED:
            return MENDED[func](self, *args, **kwargs)
        if name in SPARSE:
            raise UsageError(
                f"a wrapped module calls {name}, a matrix of which a rank has a part; for A @ x write "
                "torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])"
            )
        if name in RANDOM and is_drawn(func, args, kwargs):
            raise UsageError(
                f"a wrapped module calls {name}, whose numbers differ between ranks; only dropout can be drawn by nodes"
            )
        if name == "__getitem__" and self.A.device.type == "meta":
            args = (args[0], without_masks(args[1]))
        if Ends not in types:
            return func(*args, **kwargs)
        if not self.trusted[-1]:
            _check_numbers(name, args)
        if len({role.type for role in roles_in(args)}) > 1 and name.strip("_") in ("eq", "ne", "cat"):
            raise UsageError(
                "a wrapped module looks for or adds self-loops between nodes of two types: give add_self_loops=False"
            )
        if name in ON_ENDS:
            out = ON_ENDS[name](self, func, args, kwargs)
            self.meet(out)
            return out
        if name in PLAIN or all(role.kind == "target" for role in roles_in((args, kwargs))):
            return func(*plain(args), **plain(kwargs))
        raise UsageError(
            f"a wrapped module calls {name} on its edge_index, which has no meaning on a part of the edges"
        )

    def meet(self, index: Any) -> None:
        """Note the edges of an edge_index that was made."""
        if self.met is None or self.edges is None or not isinstance(index, Ends) or len(index.roles) < 2:
            return
        ids = self.edges.ends_of(index)[::-1]
        known = self.met.setdefault(ids.shape[1], [])
        if not any(np.array_equal(ids, other) for other in known):
            known.append(ids)

    @property
    def is_alone(self) -> bool:
        """Whether nothing is exchanged: other ranks exchange even where this one reads no row of theirs."""
        return len(self.A.column_blocks) == 1 and not has_other_ranks(self.A)

    @property
    def weight_E(self) -> torch.Tensor | None:
        """The weights of the edges; None: all are 1."""
        return None if self.edges is None else self.edges.weight_E

    def of(self, role: Role) -> LayerView:
        """Return the operator with the rows of a role: of all nodes, or of a type."""
        if role.type is None or self.edges is None:
            return self.A
        return self.edges.of_types[role.type].at(self.A.layer, self.A.is_last, None, self.A.key)

    def table(self, H: torch.Tensor, dim: int, A: LayerView | None = None) -> torch.Tensor:
        """Return H with its rows, in a dimension, at own and ghost columns (t instead of m) of an operator. Collective."""
        A = A or self.A
        self.check_rows(H, dim, A)
        is_held = dim == 0 and not H.is_inference()  # such tensors do not count how often they are written
        for held, version, table in self._tables if is_held else ():
            if held is H and version == H._version:
                return table
        if self.is_alone:
            return H
        T = self._by_rows(H, dim, lambda H_mF: A.fetch(H_mF).tensor)
        if is_held:
            types = 0 if self.edges is None else len(self.edges.of_types)
            self._tables = [*self._tables, (H, H._version, T)][-max(HELD, types) :]
        return T

    def at_owners(self, T: torch.Tensor, dim: int, A: LayerView) -> torch.Tensor:
        """Return T with rows of ghost columns added to their owners' rows (m instead of t). Collective."""
        if self.is_alone:
            return T
        return self._by_rows(T, dim, lambda T_tF: ToOwners.apply(A, T_tF))

    def _by_rows(self, H: torch.Tensor, dim: int, function: Callable) -> torch.Tensor:
        """Return what a function of rows (r, F) in the operator's type makes of the rows in a dimension."""
        rows = H.movedim(dim, 0)
        kind = H.dtype if H.is_floating_point() else torch.float64 if self.A.dtype == torch.float64 else torch.float32
        out = function(rows.to(kind).reshape(len(rows), rows.shape[1:].numel()).contiguous()).to(H.dtype)
        return out.view(len(out), *rows.shape[1:]).movedim(0, dim)

    def check_rows(self, H: torch.Tensor, dim: int, A: LayerView) -> None:
        """Raise ShapeError unless a dimension has the own rows of an operator."""
        if H.shape[dim] != A.m:
            raise ShapeError(
                f"a wrapped module reads or writes {H.shape[dim]} rows by its edge_index; expected the {A.m} own rows: "
                "x.size(0), not the number of nodes of the whole graph"
            )

    def drop(self, H: torch.Tensor, rate: float) -> torch.Tensor:
        """Return dropout of own rows, or of rows for each edge, by original ids.

        A rank that has as many of both does as the others do: then it is collective.
        """
        self.draw += 1
        if self.A.key is not None and is_nothing(self.A.key):
            return H
        kind = row_dims.row_type(H)
        A = self.A if kind is None else self.of(Role("target", kind))
        is_rows = self.passing is None and len(H) == A.m
        if self.passing is None and kind is None and self.edges is not None:
            if self.edges.is_ambiguous or self.edges.of_types:
                is_rows = not any_rank(self.A, not is_rows)
        if is_rows and H.ndim == 2:
            return A.drop(H, rate, self.draw)
        index = self.passing if self.passing is not None or self.edges is None else self.edges.index
        if is_rows:
            ids = A.node_n
        elif self.edges is not None and index is not None and len(H) == plain(index).shape[1]:
            ids = self.edges.ids(index)
        else:
            raise ShapeError(
                f"dropout on a tensor of shape {tuple(H.shape)}, whose rows are neither own nodes nor edges"
            )
        ones = torch.ones_like(H, memory_format=torch.contiguous_format).detach().view(len(H), H.shape[1:].numel())
        return H * drop_rows(self.A, ones, ids, rate, self.A.drawn_key(self.draw)).view(H.shape)


TRANSPOSES = (torch.Tensor.T.__get__, torch.Tensor.mT.__get__)  # pyrefly: ignore[missing-attribute]
SIZES = (torch.Tensor.size, torch.Tensor.shape.__get__)  # pyrefly: ignore[missing-attribute]
SPARSE = frozenset("sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor".split())
ORDERED = frozenset("lt le gt ge".split())
# Functions of an index that give no places: sizes, types and comparisons.
PLAIN = frozenset(
    "size dim nelement ndimension stride is_contiguous storage_offset element_size get_device is_floating_point "
    "is_complex is_signed data_ptr __len__ __get__ __repr__ __format__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ eq ne lt "
    "le gt ge equal new_zeros new_ones new_full new_empty new_tensor zeros_like ones_like full_like empty_like argsort "
    "is_sparse_csr".split()
)


def _check_numbers(name: str, args) -> None:
    """Raise UsageError for what computes with the numbers of nodes in an index, or compares them with other numbers."""
    bare, indices = name.strip("_").removeprefix("r"), [isinstance(arg, Ends) for arg in args]
    if any(isinstance(arg, Ends) and (WHOLE in arg.roles or plain(arg).ndim == 0 and bare == "add") for arg in args):
        return
    if name in ("to", "type") and not any(isinstance(arg, torch.dtype) and arg.is_floating_point for arg in args):
        return
    if bare in row_dims.ARITHMETIC | ORDERED or bare in ("eq", "ne") and not all(indices):
        raise UsageError(
            f"a wrapped module calls {name} on the numbers of nodes in its edge_index, which a rank numbers by itself"
        )
