"""Record the time of each phase on all ranks: spans, the table and the file of --trace."""

from .recorder import EVALUATION, Recorder

__all__ = ["EVALUATION", "Recorder"]
