"""Check an installation, and measure the rates of a machine file."""

from .examine import Examination, examine
from .health import Check

__all__ = ["Check", "Examination", "examine"]
