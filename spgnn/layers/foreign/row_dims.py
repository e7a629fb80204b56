"""Which dimension of a tensor has the rows of a rank, of nodes or of edges, and what foreign code does along it.

Sums and means along it are those of all ranks; what only one rank with all rows can compute is refused, on one rank too.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ...errors import UsageError
from ...spmm.exchange.owners import RankSum
from .ends import plain

# Functions along a dimension -> the place of it among their arguments, and what it is by default; None: all.
ALONG: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(
        "sum mean max min amax amin argmax argmin std var std_mean var_mean median nanmedian prod".split(), (1, None)
    ),
    **dict.fromkeys("logsumexp nansum nanmean count_nonzero".split(), (1, None)),
    **dict.fromkeys("norm quantile vector_norm".split(), (2, None)),
    **dict.fromkeys(
        "softmax log_softmax softmin cumsum cumprod logcumsumexp cummax sort argsort mode".split(), (1, -1)
    ),
    **dict.fromkeys("topk kthvalue diff roll".split(), (2, -1)),
    "normalize": (2, 1),
}
PRODUCTS = frozenset("matmul mm bmm __matmul__ __rmatmul__ linear scaled_dot_product_attention cdist".split())
ARITHMETIC = frozenset(
    "add sub rsub mul div true_divide floor_divide remainder pow neg float double half to embedding truediv floordiv mod type".split()
)
# Functions whose results have other rows: of them nothing is known.
OTHER_ROWS = frozenset(
    "nonzero unique unique_consecutive masked_select bincount histc permute movedim swapaxes new_zeros new_ones new_full "
    "new_empty new_tensor squeeze index_select gather take_along_dim repeat repeat_interleave expand broadcast_to".split()
)
LEFT = frozenset(
    "one_hot embedding view reshape flatten unflatten chunk split cat concat unbind".split()
)  # keep first dimensions


class RowCount(int):
    """The number of rows of a rank, in a shape; no number to compute with."""


def _refuse(self, *others):
    raise UsageError(
        "a wrapped module computes with the number of its rows, of which a rank has a part; give it the number of nodes of "
        "the graph when it is made"
    )


for name in "truediv rtruediv floordiv rfloordiv mod pow rpow".split():
    setattr(RowCount, f"__{name}__", _refuse)
RowCount.__float__ = _refuse  # pyrefly: ignore[bad-assignment]


def mark(out: Any, dim: int | None, kind: int | None = None) -> None:
    """Note that a dimension of a tensor has the rows of a rank, of nodes of a type, None: of all, or of edges."""
    if dim is not None and isinstance(out, torch.Tensor):
        vars(out).update(row_dim=dim, row_type=kind)


def row_type(value: torch.Tensor) -> int | None:
    """Return the type of the nodes that rows are of, None: all, or not known."""
    return vars(value).get("row_type")


def row_dim(value: Any) -> int | None:
    """Return the dimension that has the rows of a rank, as far as known."""
    return vars(value).get("row_dim") if isinstance(value, torch.Tensor) else None


def marked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors with rows of a rank in the arguments of a function."""
    flat = [item for arg in (*args, *kwargs.values()) for item in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    return [item for item in flat if row_dim(item) is not None]


def _dims(name: str, x: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    """Return the dimensions that a function of ALONG acts along; none of the larger of two tensors."""
    place, default = ALONG[name]
    given = kwargs.get("dim", kwargs.get("dims", args[place] if len(args) > place else default))
    if isinstance(given, torch.Tensor):
        return []
    if given is None or isinstance(given, (bool, torch.dtype)):  # std(unbiased)
        return list(range(x.ndim))
    return [dim % max(x.ndim, 1) for dim in ((given,) if isinstance(given, int) else given)]


def check(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise UsageError for what needs the rows of all ranks at once."""
    what = ""
    if (
        name in ALONG
        and name not in ("sum", "mean")
        and args
        and row_dim(args[0]) in _dims(name, args[0], args, kwargs)
    ):
        what = "along its nodes or edges"
    if name in PRODUCTS and len(args) > 1:
        a, b = args[:2]
        inner = a.ndim - 1, (b.ndim - 1 if name == "linear" else max(b.ndim - 2, 0))
        rows = row_dim(a), row_dim(b)
        of_pairs = None not in rows and a.ndim <= 2 or name[0] in "sc" and rows[1] == b.ndim - 2
        what = (
            "of each row with each other"
            if of_pairs
            else "over its nodes or edges" * (rows[0] == inner[0] or rows[1] == inner[1])
        )
    if name == "layer_norm" and (rows := row_dim(args[0])) is not None and rows >= args[0].ndim - len(args[1]):
        what = "along its nodes or edges"
    if name.strip("_").removeprefix("r") in ARITHMETIC and any(_is_of_nodes(arg, args) for arg in args):
        what = "with a weight for each node"
    if name == "einsum":
        terms, _, out = args[0].replace(" ", "").partition("->")
        factors = zip(terms.split(","), args[1] if isinstance(args[1], (list, tuple)) else args[1:])
        letters = {term[dim] for term, x in factors if (dim := row_dim(x)) is not None and "." not in term}
        what = (
            "of each row with each other" if len(letters) > 1 else "over its nodes or edges" * (not letters <= {*out})
        )
    if what:
        _refuse_part(f"{name} {what}")


def _is_of_nodes(weight: Any, args: tuple[Any, ...]) -> bool:
    """Return whether a parameter has an entry for each row of another argument."""
    if not isinstance(weight, torch.nn.Parameter):
        return False
    places = [x.ndim - dim for x in args if (dim := row_dim(x)) is not None]  # from the last dimension
    return any(place <= weight.ndim and weight.shape[-place] > 1 for place in places)


def check_is_no_number(name: str, out: Any) -> None:
    """Raise UsageError for a function that makes one number of all rows."""
    if isinstance(out, torch.Tensor) and out.ndim == 0 and name not in ("any", "all", "__getitem__", "__get__"):
        _refuse_part(f"{name} of its nodes or edges")


def check_row_count(name: str, args: tuple[Any, ...]) -> None:
    """Raise UsageError for arithmetic with the number of rows."""
    is_arithmetic = name != "to" and name.strip("_").removeprefix("r") in ARITHMETIC
    if is_arithmetic and any(isinstance(arg, RowCount) for arg in args):
        _refuse(None)


def _refuse_part(what: str) -> None:
    raise UsageError(
        f"a wrapped module calls {what}, of which a rank has a part; only sums and means are taken over all ranks"
    )


def is_sum(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a function is a sum or mean along the rows of a rank."""
    return name in ("sum", "mean") and bool(args) and row_dim(args[0]) in _dims(name, args[0], args, kwargs)


def sum_of_ranks(A: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Return the sum or mean along the rows of all ranks. Collective."""
    x, own = args[0], args[0].sum(*args[1:], **kwargs)
    rows = x.new_tensor([math.prod(x.shape[dim] for dim in _dims(name, x, args, kwargs))], dtype=torch.float64)
    kind = own.dtype if own.is_floating_point() else torch.float64
    total = RankSum.apply(A, torch.cat([own.to(kind).reshape(-1), rows.to(kind)]))
    return (total[:-1] / total[-1].detach() if name == "mean" else total[:-1]).view(own.shape).to(own.dtype)


def row_dim_of(
    name: str, out: torch.Tensor, x: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> int | None:
    """Return the dimension of a result that has the rows of x, None where it has none or it is not known."""
    dim, rest = row_dim(x), args[1:]
    assert dim is not None
    if name in OTHER_ROWS:
        return None
    if name == "__getitem__" and rest[0] is None:
        return dim + 1
    if name == "t" or name == "transpose" and {*rest} | {*kwargs.values()} in ({0, 1}, {-1, -2}):
        found = x.ndim - 1 - dim
    elif name in ("unsqueeze", "stack"):
        new = (kwargs.get("dim", rest[0] if rest else 0)) % out.ndim
        found = dim + (new <= dim)
    elif name == "__getitem__":
        first = rest[0][0] if isinstance(rest[0], tuple) and rest[0] else rest[0]
        is_mask = isinstance(first, torch.Tensor) and plain(first).dtype == torch.bool
        is_kept = is_mask or first is Ellipsis or isinstance(first, slice) and first == slice(None)
        return 0 if dim == 0 and is_kept and out.ndim else None
    elif name in ALONG:
        dims = _dims(name, x, args, kwargs)
        found = None if dim in dims else dim if out.ndim == x.ndim else dim - sum(other < dim for other in dims)
    elif name in LEFT:
        is_view = name in ("view", "reshape", "flatten", "unflatten")
        if is_view and dim == 0 and out.ndim == 1:
            return 0
        found = dim if not is_view or math.prod(out.shape[1:]) == math.prod(x.shape[1:]) and dim == 0 else None
        if name in ("cat", "concat"):
            return found
    else:
        found = out.ndim - (x.ndim - dim)
    is_there = found is not None and 0 <= found < out.ndim and out.shape[found] == x.shape[dim]
    return found if is_there else None
