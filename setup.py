"""Compile the C++ extensions; all metadata is in setup.cfg.

Files of all extensions are compiled from one queue, the longest first, on all cores (SPGNN_BUILD_JOBS: fewer). A file
is compiled again only if it, a header that it includes or its command line changed in content; objects are in
build/objects.
"""

import hashlib
import os
import platform
import resource
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import nanobind
import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Loops choose their instruction set at run time (spgnn/native/cpu.h), so no -march here.
IS_X86 = platform.machine() in ("x86_64", "AMD64")
COMMON = ["-std=c++17", "-fvisibility=hidden", "-fPIC", "-DNDEBUG", "-DNB_COMPACT_ASSERTIONS", "-Wall", "-Wno-psabi"]
# Results are the same on every machine: no fused multiply-add where scores and draws are compared. popcnt is in every
# x86-64 since 2008.
REPEATABLE = ["-O2", "-ffp-contract=off", *(["-mpopcnt"] if IS_X86 else [])]
FAST = ["-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", *([] if IS_X86 else ["-ffp-contract=fast"])]
NAMES = ("base", "avx2", "avx512")  # the numbers of spgnn/native/cpu.h


def built_isas() -> tuple[int, ...]:
    """Return the instruction sets that loops are compiled for, the baseline with them.

    SPGNN_ISA_BUILD: all, or names with commas between them; by default what this machine has.
    """
    wanted = os.environ.get("SPGNN_ISA_BUILD", "")
    if not IS_X86:
        return (0,)
    if wanted == "all":
        return (2, 1, 0)
    if wanted:
        if unknown := set(wanted.split(",")) - set(NAMES):
            raise SystemExit(f"error: SPGNN_ISA_BUILD has {sorted(unknown)}; expected all, or of {', '.join(NAMES)}")
        return tuple(sorted({0, *map(NAMES.index, wanted.split(","))}, reverse=True))
    with open("/proc/cpuinfo") as file:
        has = set(next((line for line in file if line.startswith("flags")), "").split())
    if not {"avx2", "fma", "popcnt", "bmi1"} <= has:
        return (0,)
    return (2 if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= has else 1, 0)


ISAS = built_isas()


@dataclass(frozen=True)
class Unit:
    """Files that are compiled together, as each reads the same headers; weight: seconds relative to others."""

    sources: tuple[str, ...]
    flags: tuple[str, ...]
    weight: float


def units(folder: str, names: str, *flags: str) -> list[Unit]:
    """Return one unit for each word of names, NAME+NAME:WEIGHT, the names of files in a folder."""
    made = []
    for word in names.split():
        files, _, weight = word.partition(":")
        made.append(Unit(tuple(f"spgnn/{folder}/{name}.cpp" for name in files.split("+")), flags, float(weight)))
    return made


def loops() -> list[Unit]:
    """Return the loops of spgnn.spmm, for each instruction set; those over edges also for each type of rows."""
    made = []
    for isa in ISAS:
        is_plain = IS_X86 and isa == 0  # of processors before 2013: less to compile
        flags = [f"-DSPGNN_ISA={isa}", *(["-O1"] if is_plain else [])]
        made += units(
            "spmm/kernels/loops", f"products:{5 + 8 * isa} dense:{2 + 3 * isa} gemm:{1 + 2 * isa}", *FAST, *flags
        )
        for stored, more in (("float", 11), ("bfloat16 -DSPGNN_ROUNDED", 10), ("double", 3)):
            weight = 5 + more * isa
            made += units("spmm/kernels/loops", f"edges:{weight}", *FAST, *flags, *f"-DSPGNN_STORED={stored}".split())
    return made


NANOBIND = Path(nanobind.source_dir())
LIBRARY = Unit(
    (str(NANOBIND / "nb_combined.cpp"),),
    (
        "-O2",
        "-fno-strict-aliasing",
        "-ffunction-sections",
        "-fdata-sections",
        f"-I{NANOBIND.parent}/ext/robin_map/include",
    ),
    5,
)
BUILT = [f"-DSPGNN_BUILT={sum(1 << isa for isa in ISAS)}"]
EXTENSIONS = {
    "spmm.kernels._kernels": units("spmm/kernels", "module+products+dense+gemm:13 edges:6", "-O2", "-fopenmp", *BUILT)
    + loops(),
    "samplers._samplers": units(
        "samplers", "draws+frontier:2 samplers+induce+operators+blocks:5", "-O3", *REPEATABLE[1:]
    ),
    "data._text": units("data", "text:1", "-O2"),
    "partition._loops": units("partition", "loops:4", "-O2", "-pthread"),
    "partition.refine._volume": units("partition/refine/volume", "volume:6", "-O3", "-pthread", *REPEATABLE[1:]),
    "partition.stream._stream": units("partition/stream", "stream:9", "-O3", *REPEATABLE[1:]),
    "partition.folder.pipeline._pipeline": units("partition/folder/pipeline", "pipeline:3", "-O2"),
}


class Build(build_ext):
    """Compile what is not current, then link each extension."""

    def build_extensions(self):
        self.objects = Path("build", "objects", sysconfig.get_config_var("SOABI"))
        self.objects.mkdir(parents=True, exist_ok=True)
        self.digests: dict[str, str] = {}
        compiler = shlex.split(os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "g++")
        self.command = [*([] if not shutil.which("ccache") else ["ccache"]), *compiler]
        self.includes = [
            f"-I{path}" for path in (sysconfig.get_path("include"), numpy.get_include(), nanobind.include_dir())
        ]
        started = time.perf_counter()
        every = [LIBRARY, *(unit for made in EXTENSIONS.values() for unit in made)]
        jobs = int(os.environ.get("SPGNN_BUILD_JOBS") or len(os.sched_getaffinity(0)))
        pool = ThreadPoolExecutor(jobs)
        try:
            longest_first = sorted(every, key=lambda unit: -unit.weight)
            for done in [pool.submit(self.compile, unit) for unit in longest_first]:
                done.result()
        finally:  # after an error or Ctrl-C nothing more is begun
            pool.shutdown(cancel_futures=True)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"compiled: {time.perf_counter() - started:.0f} s, {spent.ru_utime + spent.ru_stime:.0f} CPU seconds")
        super().build_extensions()

    def object_of(self, unit: Unit) -> Path:
        """Return where the object of a unit is; its defines are part of the name."""
        defines = "".join(flag.removeprefix("-DSPGNN").replace("=", "") for flag in unit.flags if "-DSPGNN" in flag)
        name = "nanobind" if unit is LIBRARY else unit.sources[0].removesuffix(".cpp").replace("/", ".")
        return self.objects / (name + defines + ".o")

    def compile(self, unit: Unit) -> None:
        out = self.object_of(unit)
        together = [word for source in unit.sources[:-1] for word in ("-include", source)]
        flags = [*COMMON, *unit.flags, *self.includes, *together]
        command = [*self.command, *flags, "-MMD", "-c", unit.sources[-1]]
        stamp, note = self.stamp(command, out), out.with_suffix(".stamp")
        if stamp and out.exists() and note.exists() and note.read_text() == stamp:
            return
        note.unlink(missing_ok=True)
        part = out.with_suffix(f".{os.getpid()}.o")  # renamed when it is whole
        command_here = [*command, "-MF", str(out.with_suffix(".d")), "-o", str(part)]
        done = subprocess.run(command_here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.stdout:
            print(done.stdout, file=sys.stderr)
        if done.returncode:
            part.unlink(missing_ok=True)
            raise SystemExit(f"error: {shlex.join(command)} failed with exit code {done.returncode}")
        part.replace(out)
        note.write_text(self.stamp(command, out))

    def stamp(self, command: list[str], out: Path) -> str:
        """Return a digest of a command line and of all files that the compiler read, "" where one is not there."""
        try:
            rule = out.with_suffix(".d").read_text().replace("\\\n", " ").partition(": ")[2]
            read = [path.replace("\0", " ") for path in rule.replace("\\ ", "\0").split()]
            parts = [shlex.join(command), *(self.digest(path) for path in read)]
        except OSError:
            return ""
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def digest(self, path: str) -> str:
        if path not in self.digests:
            self.digests[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        return self.digests[path]

    def build_extension(self, ext):
        made = [self.object_of(unit) for unit in (*EXTENSIONS[ext.name.removeprefix("spgnn.")], LIBRARY)]
        out = Path(self.get_ext_fullpath(ext.name))
        threads = ["-fopenmp"] if ext.name.endswith("_kernels") else ["-pthread"]
        command = [*self.command, "-shared", "-s", "-Wl,--gc-sections", *map(str, made), *threads, "-o", str(out)]
        stamp = "\n".join([shlex.join(command), *(path.with_suffix(".stamp").read_text() for path in made)])
        note = self.objects / f"{ext.name}.{hashlib.sha256(str(out).encode()).hexdigest()[:8]}.link"
        if out.exists() and note.exists() and note.read_text() == stamp:
            return
        out.parent.mkdir(parents=True, exist_ok=True)
        out.unlink(missing_ok=True)  # a process that has it loaded keeps it
        subprocess.run(command, check=True)
        note.write_text(stamp)


setup(
    ext_modules=[
        Extension(f"spgnn.{name}", [source for unit in made for source in unit.sources], language="c++")
        for name, made in EXTENSIONS.items()
    ],
    cmdclass={"build_ext": Build},
)
