"""The graph convolution of Kipf & Welling 2017."""

from __future__ import annotations

from .layer import Layer, random_if_dropped


class GCN(Layer):
    """Z = act(A H W + b), then layer norm and + H where asked.

    Args:   f_in, f_out  widths F and C.
            act, bias, norm, residual  see Layer.end_with.
    Source: Kipf & Welling 2017, eq. (2), with A = D^-1/2 (A + I) D^-1/2.
    """

    hops = 1
    is_random = random_if_dropped

    def __init__(
        self,
        f_in: int,
        f_out: int,
        act: str | None = None,
        bias: bool = True,
        norm: str | None = None,
        residual: bool = False,
    ):
        super().__init__(f_in, f_out)
        self.W_FC = self.weight(f_in, f_out)
        self.end_with(act, bias, norm, residual)
        self.reads_input = self.residual

    def forward(self, A, H_nF):
        """Return act(A H W + b), (n, C), of the own nodes. Collective."""
        return self.chained(A, H_nF, self.W_FC)  # eq. (2)

    def extra_repr(self) -> str:
        own = f", operator={self.operator}" if self.operator else ""
        return f"{self.f_in} -> {self.f_out}, act={self.act_name}, residual={self.residual}{own}"
