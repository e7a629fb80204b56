"""Record the time of each phase on all ranks: spans, the table of --log-view, the file of --trace."""

from .recorder import EVALUATION, Recorder

__all__ = ["EVALUATION", "Recorder"]
