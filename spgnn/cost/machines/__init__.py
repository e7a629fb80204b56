"""The constants of the cost model: Machine, and the machine files that come with spgnn."""

from .machine_file import Machine, load_machine, machine_names, this_host

__all__ = ["Machine", "load_machine", "machine_names", "this_host"]
