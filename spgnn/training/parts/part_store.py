"""PartStore: the own rows of parts as training multiplies with them, on disk from their first backward on.

To open a part again is to read arrays: nothing is sorted, normalised or transposed twice.
Shapes: n own nodes of a part, m those and its halo, F columns.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from ...config.names import Norm
from ...distgraph.own_rows import OwnRows, OwnRowsReader
from ...spmm.kernels.buffers import array_of
from ...spmm.kernels.csr import LocalCSR
from ...spmm.operator.subgraph import SubgraphSpMM
from .scratch import Scratch

CSR = ("indptr", "indices", "weights")


class PartStore:
    """The own rows of the parts of this rank, and A X of each where X is only read so.

    Args: scratch  open until the training ends.
    """

    def __init__(self, reader: OwnRowsReader, scratch: Scratch):
        self.reader, self.scratch = reader, scratch
        self._rows: dict[int, OwnRows] = {}  # with empty arrays
        self._products: dict[int, dict[str, torch.dtype]] = {}

    def __contains__(self, p: int) -> bool:
        return p in self._rows

    def open(self, p: int) -> OwnRows:
        """Return the own rows of a part."""
        if p not in self._rows:
            return self.reader.open(p)[0]
        known, node_m = self._rows[p], self._load("node_m", p)
        made = {norm: self._csr(norm, p, known.wide) for norm in self.reader.norms}
        wide = replace(known.wide.block, node_m=node_m, made=made)
        local = replace(known.local.block, node_m=node_m[: known.n])
        y_n, split_n = self.scratch.load("y_n", p), self.scratch.load("split_n", p)
        labels = {"y_n": None if y_n is None else torch.from_numpy(y_n), "split_n": split_n}
        return replace(known, node_m=node_m, wide=SubgraphSpMM(wide), local=SubgraphSpMM(local), **labels)

    def keep(self, rows: OwnRows) -> None:
        """Write the rows of a part whose layers have run forward and back, unless they are there."""
        p, none = rows.p, np.empty(0, np.int64)
        if p in self._rows:
            return
        for norm, A in rows.wide.block.made.items():
            for name, of in ((norm, A), (f"{norm}-transposed", A.transposed())):
                for key in CSR:
                    if getattr(of, key) is not None:
                        self.scratch.save(f"{name}-{key}", p, getattr(of, key))
        for name, of in (("node_m", rows.node_m), ("y_n", rows.y_n), ("split_n", rows.split_n)):
            if of is not None:
                self.scratch.save(name, p, np.asarray(of))
        wide, local = (SubgraphSpMM(replace(A.block, node_m=none, made={})) for A in (rows.wide, rows.local))
        self._rows[p] = replace(rows, node_m=none, wide=wide, local=local, y_n=None, split_n=None)

    def keep_products(self, rows: OwnRows) -> None:
        """Write A X of a part, where its layer has multiplied with a fixed X, unless it is there."""
        p, fixed, rows.wide.fixed_input = rows.p, rows.wide.fixed_input, None
        if fixed is None or self._products.get(p):
            return
        products = {key: AX for key, AX in fixed.products.items() if torch.is_tensor(AX)}
        for key, AX in products.items():
            self.scratch.save(f"product-{key}", p, array_of(AX))
        self._products[p] = {key: AX.dtype for key, AX in products.items()}

    def products(self, p: int) -> dict[str, torch.Tensor]:
        """Return A X of a part by operator; empty where it was not kept."""
        found = {}
        for key, dtype in self._products.get(p, {}).items():
            array = self._load(f"product-{key}", p)
            found[key] = (
                torch.from_numpy(array.view(np.int16)).view(dtype)
                if dtype == torch.bfloat16
                else torch.from_numpy(array)
            )
        return found

    def _load(self, name: str, p: int) -> np.ndarray:
        """Return an array that was saved."""
        found = self.scratch.load(name, p)
        assert found is not None
        return found

    def _csr(self, norm: Norm, p: int, known: SubgraphSpMM) -> LocalCSR:
        """Return the operator of a part, whose transpose is read when a gradient needs it."""

        def read(name: str, shape: tuple[int, int], flip=None) -> LocalCSR:
            arrays = (
                self._load(f"{name}-indptr", p),
                self._load(f"{name}-indices", p),
                self.scratch.load(f"{name}-weights", p),
            )
            return LocalCSR.trusted(shape, *arrays, known.dtype, known.threads, flip, is_fixed=False)

        n, m = known.block.shape
        return read(norm, (n, m), lambda: (read(f"{norm}-transposed", (m, n)), None))
