"""Operations: what one rank spends its time on, a method each, so that timers can wrap them from outside.

Shapes: n, m rows, F, C columns.
"""

from __future__ import annotations

import torch

from .kernels.csr import LocalCSR


class Operations:
    """The products, copies and exchanges of an operator; a subclass may time them."""

    def own_spmm(self, A: LocalCSR, X_mF, out_nF, **options) -> torch.Tensor:
        """out = A X with a block of the rank's own columns; options as LocalCSR.apply."""
        return A.apply(X_mF, out_nF, **options)

    def ghost_spmm(self, A: LocalCSR, X_mF, out_nF, **options) -> torch.Tensor:
        """out = A X with rows that came from, or go to, other ranks."""
        return A.apply(X_mF, out_nF, **options)

    def pack(self, B, X_nF, out_mF) -> torch.Tensor:
        """out = B X, the rows to send; B a LocalCSR or a Selection."""
        return B.apply(X_nF, out_mF)

    def unpack(self, A: LocalCSR, X_mF, out_nF) -> torch.Tensor:
        """out += A X, the received rows X added to their owners'."""
        return A.apply(X_mF, out_nF, accumulate=True)

    def gemm(self, a, b, out=None, bias=None) -> torch.Tensor:
        """Return a b (+ bias), in out where it is given."""
        return torch.mm(a, b, out=out) if bias is None else torch.addmm(bias, a, b, out=out)

    def run(self, phase: str, function, *args):
        """Return function(*args), a pass over rows that has no method of its own here."""
        return function(*args)

    def start(self, comm, send, send_rows, recv, recv_rows):
        """Start an exchange of rows and return its Request."""
        return comm.start_all_to_all(send, send_rows, recv, recv_rows)

    def wait(self, request) -> None:
        """Wait until an exchange has ended."""
        request.wait()

    def sum_rows(self, comm, send, send_rows, recv, recv_rows) -> None:
        """Exchange the rows that a process row adds up."""
        comm.all_to_all(send, send_rows, recv, recv_rows)
