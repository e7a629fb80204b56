"""What a run will send and cost, before it runs. Imports neither torch nor a communicator."""

from ..config.names import SCHEMES
from .volume_report import LayerVolume, VolumeReport, layer_table
from .volumes import measure

__all__ = ["SCHEMES", "LayerVolume", "VolumeReport", "layer_table", "measure"]
