"""dist: ranks and what they say to each other.

The protocol is `communicator`; `single`, `thread` and `mpi` are the backends; `launch` is what starts
and ends a job. Neither torch nor mpi4py is imported here.
"""

from .communicator import Communicator, Request
from .grid import ProcessGrid
from .launch import world
from .protect import run_protected
from .single import SelfCommunicator
from .thread import ThreadCommunicator, run_threads
from .traffic import Traffic

__all__ = [
    "Communicator",
    "ProcessGrid",
    "Request",
    "SelfCommunicator",
    "ThreadCommunicator",
    "Traffic",
    "run_protected",
    "run_threads",
    "world",
]
