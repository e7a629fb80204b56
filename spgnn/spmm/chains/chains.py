"""Chains of products with A: relu(A^j H W + H V + add + b), relu((own I + A) H W + b), and several powers of A side by side.

`A.way` says which product of a chain comes first, and why.
Shapes: n rows out, m own rows in, F in, C out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import ShapeError, UsageError, check_integer
from ..exchange.cached_ghosts import reads_fixed_input, times_fixed_input
from ..operator.facts import AtLayer, cached_product, check_is_held
from ..operator.features import AnyRows, DenseRows, check_factors
from .autograd import GEMM_FIRST, GHOSTS_CACHED, OWN, SPMM_FIRST, Chain, Making, Matmul, OwnSum, PowerMean, has_own_rows


def chain(
    A: AtLayer,
    H: Any,
    W_FC: torch.Tensor,
    bias_C: torch.Tensor | None = None,
    relu: bool = False,
    add: torch.Tensor | None = None,
    power: int = 1,
    V_FC: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return relu(A^power H W + H V + add + b), (n, C), the cheaper product first; add (n, C) has a gradient, too."""
    check_chain(A, H, W_FC, bias_C, add, power, V_FC)
    way = A.way(H, W_FC.shape[1], power=power)
    if V_FC is not None and not _is_beside(A, H, add, power, way):
        Z_nC = dense(A, A.select(H), V_FC, add=add)
        return chain(A, H, W_FC, bias_C, relu, Z_nC, power)

    def run(how: Making, bias_C: torch.Tensor | None, add_nC: torch.Tensor | None) -> torch.Tensor:
        of_H = None if how.S is not None and V_FC is None else H
        return Chain.apply(A, how, of_H, W_FC, V_FC, bias_C, add_nC)

    if way.is_cached:
        return run(Making(SPMM_FIRST, cached_product(A, H, power), relu), bias_C, add)
    check_is_held(H)
    if way.order == "spmm_first":
        if way.reads_ghosts:
            H, power = times_fixed_input(A, H), power - 1
        for _ in range(power - 1):
            H = A @ H
        return run(Making(SPMM_FIRST, None if power else DenseRows(H, A), relu), bias_C, add)
    order, S = (GHOSTS_CACHED, None) if way.reads_ghosts else (GEMM_FIRST, H if way.is_sparse else None)
    if power == 1:
        return run(Making(order, S, relu), bias_C, add)
    Z_nC = run(Making(order, S), None, None)
    for _ in range(power - 1):
        Z_nC = Matmul.apply(A, Z_nC)
    return ended(Z_nC, bias_C, relu, add)


def dense(
    A: AtLayer,
    H: Any,
    W_FC: torch.Tensor,
    bias_C: torch.Tensor | None = None,
    relu: bool = False,
    add: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return relu(H W + add + b) of the rows of H, which need not be all; add has the shape of H W."""
    check_factors(H, W_FC)
    check_bias("dense", W_FC, bias_C)
    check_is_held(H)
    shape = (H.shape[0], W_FC.shape[1])
    if add is not None and add.shape != shape:
        raise ShapeError(f"add of dense has shape {tuple(add.shape)}; expected {shape}")
    S, H = (H, None) if H.is_sparse else (None, H)
    return Chain.apply(A, Making(OWN, S, relu), H, W_FC, None, bias_C, add)


def _is_beside(A: AtLayer, H, add_nC, power: int, way) -> bool:
    """Return whether H V is made beside A H W, by the same function, whose gradients of H are then one sum."""
    is_plain = not H.is_sparse and A.dtype != torch.bfloat16 and add_nC is None and power == 1
    return is_plain and not way.reads_ghosts and has_own_rows(A)


def ended(Z_nC: torch.Tensor, bias_C=None, relu: bool = False, add_nC=None) -> torch.Tensor:
    """Return relu(Z + add + bias)."""
    Z_nC = Z_nC if add_nC is None else Z_nC + add_nC
    Z_nC = Z_nC if bias_C is None else Z_nC + bias_C
    return torch.relu(Z_nC) if relu else Z_nC


def check_chain(A: AtLayer, H, W_FC, bias_C, add_nC, power: int, V_FC=None) -> None:
    """Raise ShapeError or UsageError unless the factors, the bias and what is added fit each other."""
    check_integer("power", power, 1)
    check_factors(H, W_FC)
    if V_FC is not None and V_FC.shape != W_FC.shape:
        raise ShapeError(f"V of a chain has shape {tuple(V_FC.shape)}; expected the shape of W, {tuple(W_FC.shape)}")
    check_bias("a chain", W_FC, bias_C)
    if add_nC is not None and add_nC.shape != (A.n, W_FC.shape[1]):
        raise ShapeError(
            f"add of a chain has shape {tuple(add_nC.shape)}; expected that of A H W, ({A.n}, {W_FC.shape[1]})"
        )


def check_bias(of: str, W_FC: torch.Tensor, bias_C: torch.Tensor | None) -> None:
    """Raise ShapeError unless the bias has a number for each column of W."""
    if bias_C is not None and bias_C.shape != W_FC.shape[1:]:
        raise ShapeError(
            f"the bias of {of} has shape {tuple(bias_C.shape)}; expected one number for each column of W, ({W_FC.shape[1]},)"
        )


def own_chain(
    A: AtLayer,
    H: AnyRows,
    W_FC: torch.Tensor,
    own: float | torch.Tensor,
    bias_C: torch.Tensor | None = None,
    relu: bool = False,
) -> torch.Tensor:
    """Return relu((own I + A) H W + b), (n, C); own is a number or a parameter. Rows are multiplied with W once."""
    check_chain(A, H, W_FC, bias_C, None, 1)
    way = A.way(H, W_FC.shape[1])
    if H.is_sparse or way.reads_ghosts or way.order == "spmm_first":
        return A.chain(H, W_FC, bias_C, relu, V_FC=own * W_FC)
    return OwnSum.apply(A, dense(A, H, W_FC), own, bias_C, relu)


def power_mean(A: AtLayer, H: AnyRows, powers: int) -> torch.Tensor:
    """Return (H + A H + ... + A^powers H) / (powers + 1), (n, F), with two matrices (m, F) at once besides H.

    Of X, which does not change, A^j X are cached.
    """
    check_integer("powers", powers, 1)
    check_is_held(H)
    if not all(A.is_cached(H, j) for j in range(1, powers + 1)):
        return PowerMean.apply(A, H, powers)
    Z_nF = A.power(H, 1).add_(A.select(H))
    for j in range(2, powers + 1):
        Z_nF.add_(A.power(H, j))
    return Z_nF.mul_(1 / (powers + 1))


def powers(
    A: AtLayer, H: AnyRows, W: Sequence[torch.Tensor], exponents: Sequence[int], combine: str = "cat"
) -> torch.Tensor:
    """Return A^j H W_j for each exponent j, ascending: side by side, or their sum (combine = sum)."""
    check_powers(H, W, exponents, combine)
    if all(A.is_cached(H, j) for j in exponents if j):
        parts = [A.chain(H, W_j, power=j) if j else dense(A, A.select(H), W_j) for j, W_j in zip(exponents, W)]
    elif _powers_first(A, H, W, exponents, combine):
        P, reached, parts = H, 0, []
        for j, W_j in zip(exponents, W):
            P = A.power(P, j - reached) if j > reached else P
            parts.append(dense(A, A.select(P) if j == 0 else P, W_j))
            reached = j
    elif combine == "sum":
        return _horner(A, H, dict(zip(exponents, W)))
    else:
        parts = _narrowing(A, H, list(W), exponents)
    return torch.cat(parts, dim=1) if combine == "cat" else sum(parts[1:], parts[0])


def check_powers(H, W: Sequence[torch.Tensor], exponents: Sequence[int], combine: str) -> None:
    """Raise UsageError or ShapeError unless there are weights for each exponent that fit H and, in a sum, each other."""
    if combine not in ("cat", "sum"):
        raise UsageError(f"combine = {combine!r}; expected cat or sum")
    rising = all(isinstance(j, int) for j in exponents) and list(exponents) == sorted(set(exponents))
    if not rising or not exponents or exponents[0] < 0 or exponents[-1] == 0:
        raise UsageError(f"exponents = {exponents}; expected different integers, ascending, up to 1 or more")
    if len(W) != len(exponents):
        raise UsageError(f"{len(W)} weights for {len(exponents)} exponents; expected one W for each")
    for W_j in W:
        check_factors(H, W_j)
    if combine == "sum" and len({W_j.shape[1] for W_j in W}) > 1:
        raise ShapeError(
            f"a sum of powers has weights of {[W_j.shape[1] for W_j in W]} columns; expected equal numbers"
        )


def _powers_first(A: AtLayer, H, W, exponents, combine: str) -> bool:
    """Return whether A^j H has fewer columns to exchange than the products with W have."""
    if H.is_sparse:
        return False
    steps, widths = range(1, exponents[-1] + 1), [W_j.shape[1] for W_j in W]
    columns = [sum(w for j, w in zip(exponents, widths) if j >= step) for step in steps]
    travel = sum(columns) if combine == "cat" else len(steps) * widths[-1]
    return A.way(H, travel, len(steps) * H.shape[1]).order == "spmm_first"


def _horner(A: AtLayer, H, W: dict[int, torch.Tensor]) -> torch.Tensor:
    """Return sum over j of A^j H W_j = H W_0 + A (H W_1 + A (H W_2 + ...)), by Horner's scheme."""
    J = max(W)
    is_known = reads_fixed_input(A, H)  # then the chain has A H W without an exchange
    Z_nC = A.chain(H, W[J]) if is_known else dense(A, H, W[J])
    for j in reversed(range(J)):
        Z_nC = Z_nC if is_known and j == J - 1 else A @ Z_nC
        if j in W:
            Z_nC = dense(A, A.select(H) if j == 0 else H, W[j], add=Z_nC)
    return Z_nC


def _narrowing(A: AtLayer, H, W: list[torch.Tensor], exponents: Sequence[int]) -> list[torch.Tensor]:
    """Return the powers of A on H [W_0 .. W_J]: the columns of one power after the other are done, the rest is multiplied on."""
    parts, widths = [], [W_j.shape[1] for W_j in W]
    first = int(reads_fixed_input(A, H))
    if first and exponents[0] == 0:
        parts.append(dense(A, A.select(H), W.pop(0)))
    W_FC = torch.cat(W, dim=1)
    T = A.chain(H, W_FC) if first else dense(A, H, W_FC)
    for j in range(first, exponents[-1] + 1):
        T = A @ T if j > first else T
        if j in exponents:
            width = widths[len(parts)]
            parts.append((T if j else A.select(T))[:, :width])
            T = T[:, width:].contiguous()
    return parts
