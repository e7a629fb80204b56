"""From an edge stream to the folder of parts that training loads, out of core. Imports neither torch nor a communicator."""

from .pipeline import part_to_folder

__all__ = ["part_to_folder"]
