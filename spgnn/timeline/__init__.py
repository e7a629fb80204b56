"""What ranks spend their time on: the recorder of spans, the table of phases, traces and their picture."""

from .recorder import EVALUATION, Recorder

__all__ = ["EVALUATION", "Recorder"]
