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
from ...spmm.exchange.owners import RankMax, RankSum, ToOwners, any_rank, has_other_ranks
from ...spmm.operator.view import LayerView
from .ends import Ends, LocalEdges, Role, ends, plain, roles_in
from .mended import MENDED, RANDOM, bound, is_drawn
from .row_dims import (
    ARITHMETIC,
    RowCount,
    check,
    check_is_no_number,
    check_row_count,
    is_sum,
    mark,
    marked,
    row_dim,
    row_dim_of,
    sum_of_ranks,
)  # fmt: skip

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
        rows = marked(args, kwargs)
        if not self.trusted[-1]:
            check_row_count(name, args)
        if rows and not self.trusted[-1]:
            check(name, args, kwargs)
            if is_sum(name, args, kwargs):
                return sum_of_ranks(self.A, name, args, kwargs)
        out = self._computed(func, name, types, args, kwargs)
        if not rows or isinstance(out, Ends):
            return out
        if not self.trusted[-1]:
            check_is_no_number(name, out)
        if isinstance(out, (int, torch.Size)):
            return self._sizes(func, out, rows[0], args)
        for part in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(part, torch.Tensor) and not isinstance(part, Ends):
                mark(part, row_dim_of(name, part, rows[0], args, kwargs))
        return out

    def _sizes(self, func: Any, out: Any, x: torch.Tensor, args: tuple[Any, ...]) -> Any:
        """Return x.size(dim) or x.shape, in which the number of rows of a rank is a RowCount."""
        dim = row_dim(x)
        if self.trusted[-1] or func not in SIZES or x is not args[0]:
            return out
        if isinstance(out, torch.Size):
            return torch.Size([RowCount(size) if place == dim else size for place, size in enumerate(out)])
        return RowCount(out) if len(args) > 1 and args[1] % x.ndim == dim else out

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
            args = (args[0], _without_masks(args[1]))
        if Ends not in types:
            return func(*args, **kwargs)
        if not self.trusted[-1]:
            _check_numbers(name, args)
        if name in ON_ENDS:
            out = ON_ENDS[name](self, func, args, kwargs)
            self.meet(out)
            return out
        if name in PLAIN or all(role is Role.TARGET for role in roles_in((args, kwargs))):
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

    def table(self, H: torch.Tensor, dim: int) -> torch.Tensor:
        """Return H with its rows, in a dimension, at own and ghost columns (t instead of m). Collective."""
        self.check_rows(H, dim)
        is_held = dim == 0 and not H.is_inference()  # such tensors do not count how often they are written
        for held, version, table in self._tables if is_held else ():
            if held is H and version == H._version:
                return table
        if self.is_alone:
            return H
        T = self._by_rows(H, dim, lambda H_mF: self.A.fetch(H_mF).tensor)
        if is_held:
            self._tables = [*self._tables, (H, H._version, T)][-HELD:]
        return T

    def at_owners(self, T: torch.Tensor, dim: int) -> torch.Tensor:
        """Return T with rows of ghost columns added to their owners' rows (m instead of t). Collective."""
        if self.is_alone:
            return T
        return self._by_rows(T, dim, lambda T_tF: ToOwners.apply(self.A, T_tF))

    def _by_rows(self, H: torch.Tensor, dim: int, function: Callable) -> torch.Tensor:
        """Return what a function of rows (r, F) in the operator's type makes of the rows in a dimension."""
        rows = H.movedim(dim, 0)
        kind = H.dtype if H.is_floating_point() else torch.float64 if self.A.dtype == torch.float64 else torch.float32
        out = function(rows.to(kind).reshape(len(rows), rows.shape[1:].numel()).contiguous()).to(H.dtype)
        return out.view(len(out), *rows.shape[1:]).movedim(0, dim)

    def check_rows(self, H: torch.Tensor, dim: int) -> None:
        """Raise ShapeError unless a dimension has own rows."""
        if H.shape[dim] != self.A.m:
            raise ShapeError(
                f"a wrapped module reads or writes {H.shape[dim]} rows by its edge_index; expected the {self.A.m} own rows: "
                "x.size(0), not the number of nodes of the whole graph"
            )

    def drop(self, H: torch.Tensor, rate: float) -> torch.Tensor:
        """Return dropout of own rows, or of rows for each edge, by original ids.

        A rank that has as many of both does as the others do: then it is collective.
        """
        self.draw += 1
        if self.A.key is not None and is_nothing(self.A.key):
            return H
        is_rows = self.passing is None and len(H) == self.A.m
        if self.passing is None and self.edges is not None and self.edges.is_ambiguous:
            is_rows = not any_rank(self.A, not is_rows)
        if is_rows and H.ndim == 2:
            return self.A.drop(H, rate, self.draw)
        index = self.passing if self.passing is not None or self.edges is None else self.edges.index
        if is_rows:
            ids = self.A.node_n
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
    if any(
        isinstance(arg, Ends) and (Role.WHOLE in arg.roles or plain(arg).ndim == 0 and bare == "add") for arg in args
    ):
        return
    if name in ("to", "type") and not any(isinstance(arg, torch.dtype) and arg.is_floating_point for arg in args):
        return
    if bare in ARITHMETIC | ORDERED or bare in ("eq", "ne") and not all(indices):
        raise UsageError(
            f"a wrapped module calls {name} on the numbers of nodes in its edge_index, which a rank numbers by itself"
        )


def _whole(index: Ends) -> tuple[Role, torch.Tensor]:
    """Return the one role of an index, and the index without it."""
    if len(index.roles) != 1:
        raise UsageError("a wrapped module gathers or scatters by both rows of its edge_index at once")
    return index.roles[0], plain(index)


def _select(on: OnRanks, func, args, kwargs):
    """x.index_select(dim, index), and x.gather of an index that was expanded."""
    x, dim, index, *rest = bound("input dim index", args, kwargs)
    if isinstance(x, Ends):  # a permutation or choice of edges
        return ends(func(plain(x), dim, plain(index), *rest), *x.roles)
    role, place = _whole(index)
    out = func(_rows_of(on, x, dim % x.ndim, role), dim, place, *rest)
    mark(out, dim % x.ndim)
    return out


def _rows_of(on: OnRanks, x: torch.Tensor, dim: int, role: Role) -> torch.Tensor:
    """Return what a gather by an index of a role reads."""
    if role is Role.SOURCE:
        return on.table(x, dim)
    if role is Role.TARGET:
        on.check_rows(x, dim)
    return x


def _get(on: OnRanks, func, args, kwargs):
    """x[index], and edge_index[...]."""
    x, key = args
    if isinstance(x, Ends):
        return _of_index(x, key)
    keys = key if isinstance(key, tuple) else (key,)
    places = [number for number, item in enumerate(keys) if isinstance(item, Ends)]
    if len(places) != 1 or any(item is None or item is Ellipsis for item in keys[: places[0]]):
        raise UsageError(
            "a wrapped module reads a matrix at both ends of its edges, which no rank has: an adjacency matrix"
        )
    role, _ = _whole(keys[places[0]])
    out = func(_rows_of(on, x, places[0], role), plain(key))
    mark(out, places[0])
    return out


def _set(on: OnRanks, func, args, kwargs):
    """out[index] = value, as for the weights of self-loops, whose sources are own rows."""
    out, key, value = args
    if not isinstance(key, Ends):
        raise UsageError("a wrapped module writes by its edge_index along with something else")
    role, place = _whole(key)
    on.check_rows(out, 0)
    if role is Role.WHOLE or (role is Role.SOURCE and place.device.type != "meta" and bool((place >= on.A.m).any())):
        raise UsageError(
            "a wrapped module writes into rows of other ranks by its edge_index; only sums are added up there"
        )
    return func(out, place, value)


def _of_index(x: Ends, key):
    value = plain(x)[plain(key)]
    if len(x.roles) == 1:
        return value if value.ndim == 0 else ends(value, *x.roles)
    first, *rest = key if isinstance(key, tuple) else (key,)
    first = list(first) if isinstance(first, (list, tuple)) else first
    if isinstance(first, int):
        return value if value.ndim == 0 else ends(value, x.roles[first])
    if first is Ellipsis or first == slice(None):
        return ends(value, *x.roles)
    if isinstance(first, list) and not rest:
        return ends(value, *(x.roles[row] for row in first))
    raise UsageError("a wrapped module indexes its edge_index in a way that mixes its rows")


def _without_masks(key):
    """Return a key that chooses all of what masks choose from: without values there are no edges to choose."""
    if isinstance(key, tuple):
        return tuple(map(_without_masks, key))
    return slice(None) if isinstance(key, torch.Tensor) and plain(key).dtype == torch.bool else key


def _scatter(on: OnRanks, func, args, kwargs):
    """out.scatter_add_(dim, index, src), index_add_ and scatter_reduce_."""
    names = "input dim index src" if "index_add" not in func.__name__ else "input dim index source"
    out, dim, index, src, *rest = bound(names, args, kwargs)
    more = {key: value for key, value in kwargs.items() if key not in names.split()}
    role, place = _whole(index)
    dim, name = dim % out.ndim, func.__name__
    if role is not Role.WHOLE:
        on.check_rows(out, dim)
    if role is Role.TARGET:
        out = func(out, dim, place, src, *rest, **more)
        mark(out, dim)
        return out
    how = more.get("reduce", rest[0] if rest and isinstance(rest[0], str) else "sum")
    is_sum = how == "sum" and name.rstrip("_") in ("scatter_add", "index_add", "scatter_reduce")
    if not is_sum and (role is Role.SOURCE or how not in ("amax", "amin")):
        what = how if is_sum or "reduce" in name else name
        ends_at = "the node that an edge leaves" if role is Role.SOURCE else "the whole graph"
        raise UsageError(
            f"a wrapped module takes {what} at {ends_at}, which rows of other ranks have a part in; only sums are added up there"
        )
    shape = list(out.shape)
    shape[dim] = sum(b.A.shape[1] for b in on.A.column_blocks) if role is Role.SOURCE else shape[dim]
    if is_sum:
        rows = out.new_zeros(shape).index_add(dim, _flat_index(place, dim), src)
        rows = on.at_owners(rows, dim) if role is Role.SOURCE else RankSum.apply(on.A, rows)
        out = out.add_(rows) if name.endswith("_") else out + rows
        mark(out, dim if role is Role.SOURCE else None)
        return out
    sign = 1 if how == "amax" else -1
    at = place.expand_as(src) if place.ndim == src.ndim else place
    least = out.new_full(shape, float("-inf")).scatter_reduce(dim, at, sign * src, "amax", include_self=False)
    rows = sign * RankMax.apply(on.A, least)
    return out.copy_(rows) if name.endswith("_") else rows


def _flat_index(place: torch.Tensor, dim: int) -> torch.Tensor:
    """Return an index that was expanded over other dimensions as a vector."""
    for other in reversed(range(place.ndim)):
        if other != dim:
            place = place.select(other, 0) if place.ndim > 1 else place
    return place


def _kept(on: OnRanks, func, args, kwargs):
    """A view or copy of an index."""
    (index, *rest), kwargs = plain(args), plain(kwargs)
    value = func(index, *rest, **kwargs)
    if not isinstance(args[0], Ends):
        return value
    if len(args[0].roles) > 1 and value.shape != index.shape:
        raise UsageError(f"a wrapped module calls {func.__name__} on its edge_index, which mixes its rows")
    is_index = torch.is_tensor(value) and not value.is_floating_point() and value.dtype != torch.bool
    return ends(value, *args[0].roles) if is_index else value


def _joined(on: OnRanks, func, args, kwargs):
    """torch.cat of indices along their edges; rows that are added, as self-loops, are own rows."""
    items, dim = bound("tensors dim", args, kwargs)
    found = {item.roles for item in items if isinstance(item, Ends)}
    index = next(item for item in items if isinstance(item, Ends))
    if len(found) != 1 or (dim or 0) % plain(index).ndim != plain(index).ndim - 1:
        raise UsageError("a wrapped module joins both rows of its edge_index, as for a graph without directions")
    return ends(func(plain(items), dim or 0), *found.pop())


def _stacked(on: OnRanks, func, args, kwargs):
    """torch.stack([row, col])."""
    items, dim = bound("tensors dim", args, kwargs)
    if dim or not all(isinstance(item, Ends) and len(item.roles) == 1 for item in items):
        raise UsageError("a wrapped module stacks a row of its edge_index beside something else")
    return ends(func(plain(items)), *(item.roles[0] for item in items))


def _unbound(on: OnRanks, func, args, kwargs):
    """row, col = edge_index."""
    index = args[0]
    if len(index.roles) == 1:
        return func(*plain(args), **kwargs)
    return tuple(ends(row, role) for row, role in zip(plain(index).unbind(0), index.roles))


def _plus(on: OnRanks, func, args, kwargs):
    """index.max() + 1, which is a number of rows."""
    if any(plain(arg).ndim for arg in args if isinstance(arg, Ends)):
        raise UsageError("a wrapped module adds something to the numbers of nodes in its edge_index")
    return ends(func(*plain(args), **kwargs), Role.TARGET)


def _flipped(on: OnRanks, func, args, kwargs):
    """edge_index.flip([0])."""
    index, dims = args[0], args[1:] or kwargs.get("dims")
    dims = [dims[0]] if isinstance(dims[0], int) else list(dims[0])
    if len(index.roles) != 2 or dims != [0]:
        raise UsageError("a wrapped module flips its edges, which are in another order on other ranks")
    return ends(plain(index).flip(0), *reversed(index.roles))


def _sorted(on: OnRanks, func, args, kwargs):
    """index.sort(): of targets alone, whose numbers are own rows."""
    index = args[0]
    _whole(index)
    values, order = func(*plain(args), **kwargs)
    return ends(values, *index.roles), order


def _length(on: OnRanks, func, args, kwargs):
    """index.numel() > 0, which asks whether there are edges: a rank without any does as the others do."""
    return max(1, func(*plain(args), **kwargs))


def _bounds(on: OnRanks, func, args, kwargs):
    """index.max() + 1 is the number of rows that an index may have: own rows, whatever edges there are."""
    if len(args) > 1 or kwargs:
        raise UsageError(f"a wrapped module calls {func.__name__} along a row of its edge_index")
    if Role.WHOLE in args[0].roles or func.__name__.endswith("min"):
        return torch.tensor(0)
    return ends(torch.tensor(on.A.m - 1), Role.TARGET)


ON_ENDS: dict[str, Callable] = {
    **dict.fromkeys(("index_select", "gather"), _select),
    **dict.fromkeys(
        ("scatter_add_", "scatter_add", "scatter_reduce_", "scatter_reduce", "scatter_", "scatter"), _scatter
    ),
    **dict.fromkeys(("index_add_", "index_add"), _scatter),
    **dict.fromkeys(("view", "reshape", "expand", "expand_as", "unsqueeze", "squeeze", "flatten", "view_as"), _kept),
    **dict.fromkeys(("contiguous", "clone", "detach", "to", "long", "int", "type", "cpu"), _kept),
    **dict.fromkeys(("max", "min", "amax", "amin"), _bounds),
    "__getitem__": _get,
    "__setitem__": _set,
    "cat": _joined,
    "stack": _stacked,
    "unbind": _unbound,
    **dict.fromkeys(("add", "__add__", "__radd__"), _plus),
    "flip": _flipped,
    "sort": _sorted,
    "numel": _length,
}
