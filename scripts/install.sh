#!/usr/bin/env bash
# Creates .venv if needed and installs the project into it, unless it is up to date.
#
#   bash scripts/install.sh [dev]    with all extras; dev adds the developer tools
#
# PYTHON is the interpreter for .venv; default: a supported one on the PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "install: error: $*" >&2
    exit 1
}

# Prints the version, such as 3.11.7, or nothing if $1 is not a working Python.
version_of() {
    "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null || true
}

fits() {
    [[ "$1" =~ ^3\.(11|12|13)\. ]]
}

# Sets `python` to a supported interpreter, or fails with a one-line error.
find_python() {
    local candidate version seen=()
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
        version="$(version_of "$candidate")"
        if fits "$version"; then
            python="$candidate"
            return
        fi
        seen+=("$candidate is ${version:-not found}")
    done
    fail "Python 3.11, 3.12 or 3.13 is needed, but $(IFS=,; echo "${seen[*]}" | sed 's/,/, /g');" \
        "install one, or name it: PYTHON=/path/to/python3.12"
}

make_venv() {
    find_python
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        fail "$python has no venv module; on Debian or Ubuntu: apt-get install python3-venv"
    fi
    echo "Making .venv with $python ($(version_of "$python"))."
    if ! "$python" -m venv .venv; then
        rm -rf .venv
        fail "$python -m venv .venv failed"
    fi
}

# Prints a hash of everything that the installation depends on.
fingerprint() {
    .venv/bin/python - <<'END'
import hashlib, os, pathlib, sys

files = [pathlib.Path(name).read_bytes() for name in ("pyproject.toml", "requirements.txt")]
place = f"{os.getcwd()} {sys.version}".encode()
print(hashlib.sha256(b"\0".join([*files, place])).hexdigest())
END
}

extra="${1:-}"
[[ "$extra" == "" || "$extra" == dev ]] || fail "the only argument is dev, got $extra"

if [[ ! -e .venv ]]; then
    make_venv
fi
version="$(version_of .venv/bin/python)"
fits "$version" ||
    fail ".venv holds ${version:-no working} Python; remove that folder and try again"

stamp=".venv/installed${extra:+-$extra}"
state="$(fingerprint)"
if [[ "$(cat "$stamp" 2>/dev/null)" == "$state" ]]; then
    exit 0
fi
echo "Installing into .venv: about 2.5 GB, minutes on a first run."
quiet="$([[ -t 1 ]] || echo --quiet)"
.venv/bin/python -m pip install --disable-pip-version-check $quiet -e ".[${extra:-all}]"
echo "$state" >"$stamp"
echo "$state" >.venv/installed # `dev` holds all that is in the plain installation
