"""What a run will send and cost, before it runs. Imports neither torch nor a communicator."""

from .exchanges import SCHEMES
from .report import LayerVolume, VolumeReport, layer_table
from .volume import measure

__all__ = ["SCHEMES", "LayerVolume", "VolumeReport", "layer_table", "measure"]
