"""Steps: how a model is trained on one source of rows; Trainer runs them epoch after epoch."""

from .full import FullStep
from .step import Scorer, Step, WrappedStep

__all__ = ["FullStep", "Scorer", "Step", "WrappedStep"]
