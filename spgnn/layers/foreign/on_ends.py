"""What gathers and scatters by an edge_index, and changes of it, are on the rows of a rank; see OnRanks.

Shapes: m own rows, t own and ghost columns, E edges, F columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...errors import UsageError
from ...spmm.exchange.owners import RankMax, RankSum
from .ends import TARGET, WHOLE, Ends, Role, ends, plain
from .mended import bound
from .row_dims import mark


def _whole(index: Ends) -> tuple[Role, torch.Tensor]:
    """Return the one role of an index, and the index without it."""
    if len(index.roles) != 1:
        raise UsageError("a wrapped module gathers or scatters by both rows of its edge_index at once")
    return index.roles[0], plain(index)


def _select(on: Any, func, args, kwargs):
    """x.index_select(dim, index), and x.gather of an index that was expanded."""
    x, dim, index, *rest = bound("input dim index", args, kwargs)
    if isinstance(x, Ends):  # a permutation or choice of edges
        return ends(func(plain(x), dim, plain(index), *rest), *x.roles)
    role, place = _whole(index)
    out = func(_rows_of(on, x, dim % x.ndim, role), dim, place, *rest)
    mark(out, dim % x.ndim)
    return out


def _rows_of(on: Any, x: torch.Tensor, dim: int, role: Role) -> torch.Tensor:
    """Return what a gather by an index of a role reads."""
    if role.kind == "source":
        return on.table(x, dim, on.of(role))
    if role.kind == "target":
        on.check_rows(x, dim, on.of(role))
    return x


def _get(on: Any, func, args, kwargs):
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


def _set(on: Any, func, args, kwargs):
    """out[index] = value, as for the weights of self-loops, whose sources are own rows."""
    out, key, value = args
    if not isinstance(key, Ends):
        raise UsageError("a wrapped module writes by its edge_index along with something else")
    role, place = _whole(key)
    A = on.of(role)
    on.check_rows(out, 0, A)
    if role is WHOLE or (role.kind == "source" and place.device.type != "meta" and bool((place >= A.m).any())):
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


def without_masks(key):
    """Return a key that chooses all of what masks choose from: without values there are no edges to choose."""
    if isinstance(key, tuple):
        return tuple(map(without_masks, key))
    return slice(None) if isinstance(key, torch.Tensor) and plain(key).dtype == torch.bool else key


def _scatter(on: Any, func, args, kwargs):
    """out.scatter_add_(dim, index, src), index_add_ and scatter_reduce_."""
    names = "input dim index src" if "index_add" not in func.__name__ else "input dim index source"
    out, dim, index, src, *rest = bound(names, args, kwargs)
    more = {key: value for key, value in kwargs.items() if key not in names.split()}
    role, place = _whole(index)
    dim, name = dim % out.ndim, func.__name__
    A, is_source = on.of(role), role.kind == "source"
    if role is not WHOLE:
        on.check_rows(out, dim, A)
    if role.kind == "target":
        out = func(out, dim, place, src, *rest, **more)
        mark(out, dim, role.type)
        return out
    how = more.get("reduce", rest[0] if rest and isinstance(rest[0], str) else "sum")
    is_sum = how == "sum" and name.rstrip("_") in ("scatter_add", "index_add", "scatter_reduce")
    if not is_sum and (is_source or how not in ("amax", "amin")):
        what = how if is_sum or "reduce" in name else name
        ends_at = "the node that an edge leaves" if is_source else "the whole graph"
        raise UsageError(
            f"a wrapped module takes {what} at {ends_at}, which rows of other ranks have a part in; only sums are added up there"
        )
    shape = list(out.shape)
    shape[dim] = sum(b.A.shape[1] for b in A.column_blocks) if is_source else shape[dim]
    if is_sum:
        rows = out.new_zeros(shape).index_add(dim, _flat_index(place, dim), src)
        rows = on.at_owners(rows, dim, A) if is_source else RankSum.apply(A, rows)
        out = out.add_(rows) if name.endswith("_") else out + rows
        mark(out, dim if is_source else None, role.type)
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


def _kept(on: Any, func, args, kwargs):
    """A view or copy of an index."""
    (index, *rest), kwargs = plain(args), plain(kwargs)
    value = func(index, *rest, **kwargs)
    if not isinstance(args[0], Ends):
        return value
    if len(args[0].roles) > 1 and value.shape != index.shape:
        raise UsageError(f"a wrapped module calls {func.__name__} on its edge_index, which mixes its rows")
    is_index = torch.is_tensor(value) and not value.is_floating_point() and value.dtype != torch.bool
    return ends(value, *args[0].roles) if is_index else value


def _joined(on: Any, func, args, kwargs):
    """torch.cat of indices along their edges; rows that are added, as self-loops, are own rows."""
    items, dim = bound("tensors dim", args, kwargs)
    found = {item.roles for item in items if isinstance(item, Ends)}
    index = next(item for item in items if isinstance(item, Ends))
    if len(found) != 1 or (dim or 0) % plain(index).ndim != plain(index).ndim - 1:
        raise UsageError("a wrapped module joins both rows of its edge_index, as for a graph without directions")
    return ends(func(plain(items), dim or 0), *found.pop())


def _stacked(on: Any, func, args, kwargs):
    """torch.stack([row, col])."""
    items, dim = bound("tensors dim", args, kwargs)
    if dim or not all(isinstance(item, Ends) and len(item.roles) == 1 for item in items):
        raise UsageError("a wrapped module stacks a row of its edge_index beside something else")
    return ends(func(plain(items)), *(item.roles[0] for item in items))


def _unbound(on: Any, func, args, kwargs):
    """row, col = edge_index."""
    index = args[0]
    if len(index.roles) == 1:
        return func(*plain(args), **kwargs)
    return tuple(ends(row, role) for row, role in zip(plain(index).unbind(0), index.roles))


def _plus(on: Any, func, args, kwargs):
    """index.max() + 1, which is a number of rows."""
    if any(plain(arg).ndim for arg in args if isinstance(arg, Ends)):
        raise UsageError("a wrapped module adds something to the numbers of nodes in its edge_index")
    return ends(func(*plain(args), **kwargs), TARGET)


def _flipped(on: Any, func, args, kwargs):
    """edge_index.flip([0])."""
    index, dims = args[0], args[1:] or kwargs.get("dims")
    dims = [dims[0]] if isinstance(dims[0], int) else list(dims[0])
    if len(index.roles) != 2 or dims != [0]:
        raise UsageError("a wrapped module flips its edges, which are in another order on other ranks")
    return ends(plain(index).flip(0), *reversed(index.roles))


def _sorted(on: Any, func, args, kwargs):
    """index.sort(): of targets alone, whose numbers are own rows."""
    index = args[0]
    _whole(index)
    values, order = func(*plain(args), **kwargs)
    return ends(values, *index.roles), order


def _length(on: Any, func, args, kwargs):
    """index.numel() > 0, which asks whether there are edges: a rank without any does as the others do."""
    return max(1, func(*plain(args), **kwargs))


def _bounds(on: Any, func, args, kwargs):
    """index.max() + 1 is the number of rows that an index may have: own rows, whatever edges there are."""
    if len(args) > 1 or kwargs:
        raise UsageError(f"a wrapped module calls {func.__name__} along a row of its edge_index")
    if WHOLE in args[0].roles or func.__name__.endswith("min"):
        return torch.tensor(0)
    return ends(torch.tensor(on.of(args[0].roles[-1]).m - 1), TARGET)


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
