"""dist: ranks and the messages between them.

The protocol is in `communicator`; `base` (one rank), `thread`, `mpi`, `gloo` and `device` are the backends; `launch`
connects the ranks of a job and `job` ends it. Neither torch nor mpi4py is imported here.
"""

from .base import SelfCommunicator
from .communicator import Communicator, Request
from .launch import run_protected, world
from .thread import ThreadCommunicator, run_threads
from .traffic import Traffic

__all__ = [
    "Communicator", "Request", "SelfCommunicator", "ThreadCommunicator", "Traffic", "run_protected", "run_threads",
    "world",
]  # fmt: skip
