"""The CUDA side of spmm: kernels compiled at run time by CuPy, which nothing imports before a device is requested."""

from .kernels import CudaKernels

__all__ = ["CudaKernels"]
