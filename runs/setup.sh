# shellcheck shell=bash
# Sourced by runs/quickstart, runs/test and runs/site: makes .venv in the repository, installs spgnn with the extras of
# $extras and what these need into it, and puts it first on PATH. Quick when nothing changed; compiled files are kept in
# build/.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"
stamp="$venv/spgnn.stamp"

say() { printf 'spgnn: %s\n' "$*" >&2; }

fail() {
    say "error: $*"
    exit 4
}

# Print the first Python of at least 3.11: $PYTHON, then python3, then those with a version in their name.
find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        if [[ -n $candidate ]] && command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import os, sys; sys.version_info < (3, 11) and sys.exit(1); print(os.path.realpath(sys.executable))' 2>/dev/null; then
            # The real path: inside an activated .venv, python3 is a link that --clear would remove.
            return 0
        fi
    done
    return 1
}

# Print the first C++ compiler that links OpenMP.
find_compiler() {
    local candidate
    for candidate in "${CXX:-}" g++ c++ clang++; do
        # CXX may carry options, so it is split into words on purpose.
        # shellcheck disable=SC2086
        if [[ -n $candidate ]] && command -v ${candidate%% *} >/dev/null 2>&1 &&
            printf '#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n' |
            $candidate -x c++ -std=c++17 -fopenmp -o /dev/null - >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

is_own_venv() {
    [[ -x $venv/bin/python && -f $venv/bin/pip && $("$venv/bin/python" -VV 2>&1) == "$("$1" -VV)" ]] &&
        head -n 3 "$venv/bin/pip" | grep -qF "$venv/bin/"
}

has_headers() {
    local include
    include="$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')" && [[ -f $include/Python.h ]]
}

has_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

# Print the Debian packages that are missing, on one line.
missing_packages() {
    local packages=() python
    if python="$(find_python)"; then
        has_venv "$python" || packages+=("$(package_of "$python" venv)")
        has_headers "$python" || packages+=("$(package_of "$python" dev)")
    else
        packages+=(python3 python3-venv python3-dev)
    fi
    find_compiler >/dev/null || packages+=(g++)
    printf '%s\n' "${packages[*]}"
}

# The package of a part of Python: python3-venv for python3, python3.12-venv for a python3.12 beside it.
package_of() {
    local name
    name="$(basename "$1")"
    printf '%s-%s\n' "$([[ $name == python3* ]] && printf '%s' "$name" || printf 'python3')" "$2"
}

# Install what is missing where that is allowed; otherwise say in one line what to install.
need_tools() {
    local packages
    packages="$(missing_packages)"
    [[ -z $packages ]] && return 0
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null 2>&1; then
        say "installing $packages"
        # shellcheck disable=SC2086
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages; } >&2 ||
            fail "cannot install $packages; spgnn needs Python 3.11 or later and a C++ compiler with OpenMP"
        packages="$(missing_packages)"
        [[ -z $packages ]] && return 0
    fi
    fail "Python 3.11 or later with venv and headers, and a C++ compiler with OpenMP, are needed; install them: apt-get install $packages"
}

# Print what the installation depends on: the place, the extras, the interpreter, the metadata and the C++ sources.
fingerprint() {
    local python="$1"
    {
        printf '%s\n' "$root" "$python" "$extras"
        "$python" -VV
        cd "$root" || return
        find spgnn -name '*.cpp' -o -name '*.h' -o -name '*.cu' | LC_ALL=C sort | xargs cat setup.py setup.cfg pyproject.toml runs/constraints.txt
    } | sha256sum | cut -d ' ' -f 1
}

has_extensions() { [[ -n $(find "$root/spgnn" -name '_*.so' -print -quit) ]]; }

# Print the packages that spgnn and its extras need.
requirements() {
    "$venv/bin/python" - "$root/setup.cfg" "$extras" <<'PYTHON'
import configparser, sys
cfg = configparser.ConfigParser()
cfg.read(sys.argv[1])
wanted = [cfg["options"]["install_requires"], *(cfg["options.extras_require"][name] for name in sys.argv[2].split(","))]
print("\n".join(wanted))
PYTHON
}

# Compile the extensions in the background, into $log; wait_for_compiler waits for it.
start_compiler() {
    (cd "$root" && exec "$venv/bin/python" setup.py build_ext --inplace) >"$log" 2>&1 &
    compiler=$!
    trap 'kill "$compiler" 2>/dev/null' EXIT
}

wait_for_compiler() {
    if ! wait "$compiler"; then
        cat "$log" >&2
        fail "the extensions cannot be compiled, see above"
    fi
    trap - EXIT
    say "$(grep '^compiled' "$log")"
}

install_spgnn() {
    local python wanted enough log="$venv/compile.log" compiler started=$SECONDS
    python="$(find_python)" || python=""
    if [[ -n $python && -x $venv/bin/python ]]; then
        for enough in "$extras" "$all_extras"; do
            wanted="$(extras="$enough" fingerprint "$python")"
            if [[ -f $stamp && $(<"$stamp") == "$wanted" ]] && has_extensions && "$venv/bin/python" -c ''; then
                return 0
            fi
        done
    fi
    need_tools
    python="$(find_python)"
    CXX="$(find_compiler)"
    export CXX
    wanted="$(fingerprint "$python")"
    say "setting up $venv (some minutes the first time)"
    rm -f "$stamp"
    # An environment of another place or interpreter, or half a one, is not mended.
    is_own_venv "$python" || "$python" -m venv --clear "$venv" >&2 || fail "cannot make $venv, see above"
    local pip=("$venv/bin/python" -m pip --disable-pip-version-check install --quiet -c "$root/runs/constraints.txt")
    "${pip[@]}" setuptools nanobind numpy >&2 || fail "what compiles spgnn cannot be installed into $venv, see above"
    say "environment: $((SECONDS - started)) s"
    started=$SECONDS
    start_compiler  # beside the downloads
    # torch first: it is by far the largest, and an interrupted set-up keeps it.
    "${pip[@]}" torch >&2 || fail "torch cannot be installed into $venv, see above"
    say "torch: $((SECONDS - started)) s, while the extensions are compiled"
    started=$SECONDS
    requirements >"$venv/requirements.txt"
    "${pip[@]}" -r "$venv/requirements.txt" >&2 || fail "what spgnn needs cannot be installed into $venv, see above"
    say "other packages: $((SECONDS - started)) s"
    started=$SECONDS
    wait_for_compiler
    "${pip[@]}" --no-build-isolation --no-deps -e "$root" >&2 || fail "spgnn cannot be installed into $venv, see above"
    say "waiting for the compiler, and spgnn itself: $((SECONDS - started)) s"
    printf '%s\n' "$wanted" >"$stamp"
}

all_extras=mpi,plot,cli,tables,docs,dev
extras="${extras:-$all_extras}"
install_spgnn
export PATH="$venv/bin:$PATH"
