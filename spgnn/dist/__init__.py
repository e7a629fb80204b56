"""dist: ranks and what they say to each other.

The protocol is `communicator`; `alone`, `thread`, `mpi` and `device` are the backends; `launch` starts
a job and `job` ends it. Neither torch nor mpi4py is imported here.
"""

from .alone import SelfCommunicator
from .communicator import Communicator, Request
from .job.protect import run_protected
from .launch import world
from .thread import ThreadCommunicator, run_threads
from .traffic import Traffic

__all__ = [
    "Communicator",
    "Request",
    "SelfCommunicator",
    "ThreadCommunicator",
    "Traffic",
    "run_protected",
    "run_threads",
    "world",
]
