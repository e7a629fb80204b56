"""The exceptions that reach a user, each with the exit code of the process that it ends."""

from __future__ import annotations

import difflib
import errno
import inspect
import math
import numbers
import os
import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol, TextIO, TypeGuard, TypeVar, overload

T = TypeVar("T")

NO_MEMORY = (
    *("can't allocate memory", "cannot allocate memory", "out of memory", "can't start new thread"),
    *("std::bad_alloc", "failed to map segment", "could not allocate"),  # C++, the loader, NumPy
)
STYLES = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}
CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}

OPTION = re.compile(  # a command, or a name of the user's in quotes; an option and its value
    r"(`[^`]*`|(?<!\w)(?:'[^'\n]*'|\"[^\"\n]*\")|spgnn [a-z][^;,]*)|(?<![\w/-])--([a-z][a-z-]*)(?: ([A-Z]{2,}|\d+)\b)?"
)

# What others call an option or one of its values -> ours, the first that is known where it was given.
MEANT = {
    guess: ours
    for ours, guesses in {
        "patience": "early_stopping early_stop earlystopping stop_after",
        "device cuda": "gpu gpus use_gpu cuda_device accelerator",
        "cuda device": "cuda:0",
        "batch budget": "batch_size bs minibatch mini_batch num_targets",
        "lr": "learning_rate learningrate step_size eta alpha",
        "epochs": "n_epochs num_epochs max_epochs iterations n_iter max_iter steps iters",
        "hidden": "hidden_channels hidden_dim hidden_size hidden_units n_hidden num_hidden width dim channels embed_dim",
        "layers": "n_layers num_layers depth",
        "weight_decay": "wd l2 l2_reg regularization regularisation",
        "dropout": "p drop drop_rate dropout_rate feat_drop",
        "act": "activation nonlinearity",
        "aggregator": "aggr aggregation aggregator_type",
        "combine merge": "concat",
        "f_in f": "in_channels in_feats in_features in_dim num_features input_dim",
        "f_out f": "out_channels out_feats out_features out_dim num_classes n_classes num_labels output_dim",
        "n_nodes": "num_nodes num_vertices n_vertices",
        "fanout": "num_neighbors num_neighbours neighbors neighbours fan_out sizes",
        "split": "train_mask val_mask test_mask mask masks splits train_val_test",
        "features X": "x feats node_feats node_features attributes",
        "labels y": "y targets classes target",
        "out": "output output_dir out_dir outdir save save_dir log_dir folder results",
        "dtype": "precision fp16 bf16 amp half float16 mixed_precision type",
        "ranks k": "n ntasks np nprocs n_procs nproc num_ranks n_ranks processes world_size nparts n_parts num_partitions k ranks",
        "parts k": "num_parts parts",
        "predict": "infer inference evaluate eval test score",
    }.items()
    for guess in guesses.split()
}
# What others have as an option -> what it is here.
ELSEWHERE = {
    **dict.fromkeys(
        (guess for guess, ours in MEANT.items() if ours == "ranks k"),
        "the launcher starts ranks: mpirun -n N spgnn ...",
    ),
    **dict.fromkeys(
        "in_channels out_channels num_features num_classes n_classes in_feats in_dim out_dim num_nodes".split(),
        "nodes, features and classes are counted in GRAPH",
    ),
    **dict.fromkeys("verbose quiet v q progress".split(), "messages are on stderr, --json is for machines"),
}


class Ranks(Protocol):
    """What errors need of a Communicator."""

    @property
    def rank(self) -> int: ...

    def all_gather_json(self, value: Any) -> list[Any]: ...


class SpgnnError(Exception):
    """An error with a message for a person: what was wrong, where, what was expected, the fix.

    Options have the name that they were given by: of `main` --edge-features FILE, in Python edge_features=FILE.
    """

    exit_code = 1
    is_of_main = False  # the command line is running
    keywords: ClassVar[dict[str, str]] = {}  # of Python, by the name of an option; spgnn.config has them

    def __str__(self) -> str:
        return shortened(as_given(super().__str__()))


def as_given(message: str) -> str:
    """Return a message in which options are keywords of Python, unless the command line is running."""
    if SpgnnError.is_of_main:
        return message

    def keyword(found: re.Match) -> str:
        command, option, value = found.groups()
        name = None if command else SpgnnError.keywords.get(option.replace("-", "_"))
        return found[0] if name is None else name if value is None else f"{name}={value}"

    return OPTION.sub(keyword, message)


class UsageError(SpgnnError):
    """An option, key or argument that does not exist or does not fit the others."""

    exit_code = 2


class InputError(SpgnnError):
    """A file, array or graph that cannot be used."""

    exit_code = 3


class FormatError(InputError):
    """A file that is not what its format says."""


class GraphError(InputError):
    """Arrays that do not make a graph."""


class PartitionError(InputError):
    """An owner array that does not fit the graph or the ranks."""


class SamplerError(InputError):
    """A user's sampler that fails, or whose result is no nodes of the graph."""


class ShapeError(InputError):
    """An array of another shape or dtype than the operation needs."""


class CheckpointError(InputError):
    """A checkpoint or run folder that cannot be loaded."""


class ResourceError(SpgnnError):
    """Memory, disk, compiler or launcher that is missing or too small."""

    exit_code = 4


class LaunchError(ResourceError):
    """The processes that were started do not make one job."""


class NumericalError(SpgnnError):
    """A loss or gradient that is not finite."""

    exit_code = 5


class StoppedError(SpgnnError):
    """A training that a signal ended, from whose checkpoint it can be continued; is_together: on all ranks at once."""

    def __init__(self, message: str, exit_code: int = 75, is_together: bool = False):
        super().__init__(message)
        self.exit_code, self.is_together = exit_code, is_together


class WatchdogError(SpgnnError):
    """A job in which nothing has moved for too long."""

    exit_code = 70


class CollectiveError(SpgnnError):
    """The ranks called different collectives, or the same one with buffers that do not fit."""


class RankError(SpgnnError):
    """Another rank failed; this rank stops with it."""

    def __init__(self, message: str, exit_code: int = 1):
        super().__init__(message)
        self.exit_code = exit_code


def printable(text: str) -> str:
    """Return text with control characters as \\x1b, so that a name in it sends a terminal no commands; lines stay lines."""
    return text.translate(CONTROL)


def shortened(text: str) -> str:
    """Return a message whose words of over 500 characters, but for their ends, are left out: a key of a file, say."""
    return re.sub(r"\S{501,}", lambda word: f"{word[0][:200]}...{word[0][-100:]}", text)


def message_text(text: str) -> str:
    """Return a printable message without long words."""
    return printable(shortened(text))


def styled(text: str, stream: TextIO, colour: str = "", bold: bool = False) -> str:
    """Return text in a colour of STYLES or bold, where stream is a terminal that shows them and NO_COLOR is not set."""
    codes = [STYLES[name] for name in (colour, "bold" * bold) if name]
    if not codes or not text or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return f"\x1b[{';'.join(codes)}m{text}\x1b[0m"


def message_lines(message: str, stream: TextIO) -> str:
    """Return "spgnn: ", the printable message and a line end; on a terminal lines wrap between words, "error:" is red."""
    text = f"spgnn: {message_text(message)}"
    try:
        columns = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):
        columns = 0
    if columns > 20:
        layout = {"width": columns - 1, "break_long_words": False, "break_on_hyphens": False}
        indents = {line: " " * (len(line) - len(line.lstrip()) + 2) for line in text.split("\n")}
        text = "\n".join(textwrap.fill(line, subsequent_indent=indents[line], **layout) for line in text.split("\n"))
    first = "spgnn: error:"
    return (
        f"spgnn: {styled('error:', stream, 'red', bold=True)}{text[len(first) :]}" if text.startswith(first) else text
    ) + "\n"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the known name of the same meaning or nearest to name, or the list of known ones."""
    known = sorted(known)
    bare = {word.lstrip("-").replace("-", "_"): word for word in reversed(known)}
    guess = str(name).lstrip("-").replace("-", "_").lower()
    for meant in MEANT.get(guess, "").split():
        if meant in bare:
            return f"; did you mean {bare[meant]!r}?"
    if guess in ELSEWHERE:
        return f"; {ELSEWHERE[guess]}"
    if guess in bare:  # in other letters
        return f"; did you mean {bare[guess]!r}?"
    if anagrams := [word for word in known if sorted(word) == sorted(guess)]:  # letters that changed places
        return f"; did you mean {anagrams[0]!r}?"
    match = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else f"; expected one of: {', '.join(known)}"


class NamesKeywords(type):
    """A class whose errors about an unknown keyword name the nearest one that it has; `end`: those of its end_with too."""

    def __call__(cls, *args, **keywords):
        try:
            return super().__call__(*args, **keywords)
        except TypeError as error:
            known = set(inspect.signature(cls.__init__).parameters)
            known |= (
                set(inspect.signature(getattr(cls, "end_with", cls.__init__)).parameters) if "end" in known else set()
            )
            if "argument" in str(error):
                check_keywords(cls.__name__, keywords, known - {"self", "end", "layers"})
            raise


def check_keywords(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise UsageError for the first keyword that is not known, with the nearest one that is."""
    for name in given:
        if name not in known:
            raise UsageError(f"{where}: unknown key {name!r}{nearest(name, known)}")


def is_integer(value: object) -> TypeGuard[int]:
    """Whether value is an integer, one of NumPy's too; True and False are none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether value is a real number, one of NumPy's too; True and False are none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_integer(name: str, value: object, least: int | None = None) -> int:
    """Return an integer. Raises: UsageError for anything else, and for an integer below least."""
    if not is_integer(value) or (least is not None and value < least):
        raise UsageError(f"{name} = {value!r}; expected an integer{'' if least is None else f' of {least} or more'}")
    return int(value)


def check_integers(name: str, values, least: int = 1) -> tuple[int, ...]:
    """Return a sequence of integers as a tuple. Raises: UsageError for anything else, and for an integer below least."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise UsageError(f"{name} = {values!r}; expected a sequence of integers, such as (1, 2)")
    return tuple(check_integer(name, value, least) for value in values)


def check_number(name: str, value, least: float = -math.inf) -> float:
    """Return a finite number. Raises: UsageError for anything else, and for a number below least."""
    if not is_number(value) or not math.isfinite(value) or value < least:
        bound = "" if least == -math.inf else f" of {least:g} or more"
        raise UsageError(f"{name} = {value!r}; expected a finite number{bound}")
    return value


def check_choice(name: str, value, choices: Iterable[str]) -> None:
    """Raise UsageError unless the value of an option is one of the choices."""
    if value not in choices:
        raise UsageError(f"{name} = {value!r} is not known{nearest(str(value), choices)}")


def agree(comm: Ranks, error: BaseException | None) -> None:
    """Raise on all ranks if any rank has an error; return on all ranks if none has.

    A rank with an error raises its own; the others raise RankError that names the first such rank,
    its message and its exit code. Collective.
    """
    mine = None if error is None else {"message": str(error) or type(error).__name__, "exit_code": exit_code_of(error)}
    failed = [(rank, theirs) for rank, theirs in enumerate(comm.all_gather_json(mine)) if theirs is not None]
    if error is not None:
        raise error
    if failed:
        rank, theirs = failed[0]
        raise RankError(f"rank {rank} failed: {theirs['message']}", theirs["exit_code"])


@overload
def together(comm: Ranks, function: Callable[..., T], *args: Any) -> T: ...
@overload
def together(comm: Ranks, function: Callable[..., T], *args: Any, root: int) -> T | None: ...
def together(comm: Ranks, function: Callable[..., T], *args: Any, root: int | None = None) -> T | None:
    """Return function(*args); where it fails on one rank, all ranks raise (see agree).

    With root, that rank alone calls it and the others return None. Collective.
    """
    error = result = None
    if root is None or comm.rank == root:
        try:
            result = function(*args)
        except Exception as caught:  # handed to all ranks, which raise together
            error = caught
    agree(comm, error)
    return result


def from_root(comm: Ranks, function: Callable[..., Any], *args: Any) -> Any:
    """Return on all ranks what function(*args) returns on rank 0, a JSON value; where it fails, all raise. Collective."""
    return comm.all_gather_json(together(comm, function, *args, root=0))[0]


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of the process that error ends."""
    if is_out_of_memory(error):
        return ResourceError.exit_code
    return error.exit_code if isinstance(error, SpgnnError) else 1


def is_out_of_memory(error: BaseException) -> bool:
    """Whether error is a MemoryError, or what torch, threads, the loader and the system, without a class for it, raise."""
    is_of_system = isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EAGAIN)  # EAGAIN: no process
    is_said = isinstance(error, RuntimeError | ImportError) and any(said in str(error).lower() for said in NO_MEMORY)
    return isinstance(error, MemoryError) or is_of_system or is_said
