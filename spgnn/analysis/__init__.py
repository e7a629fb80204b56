"""What a run will send and cost, before it runs. Imports neither torch nor a communicator."""

from .volume import SCHEMES, VolumeReport, measure

__all__ = ["SCHEMES", "VolumeReport", "measure"]
