# Finds uv, or installs it for this checkout alone. Sourced by ./quickstart and ./check from the root of the project.
# After `bootstrap`, $uv is the program to call; `install` fills .venv. POSIX sh.

# The first uv that knew every option used here; CI and developers use newer ones.
UV_REQUIREMENT='uv>=0.8,<1'
UV_HOME=.uv-bootstrap

bootstrap() {
    uv=$(find_uv) && return
    python=$(find_python) || fail "no Python found. Install Python 3.11 or newer (https://www.python.org/downloads/), then run this again."
    say "uv is not on this machine; installing it from PyPI into $UV_HOME/"
    install_in_venv "$python" || install_with_pip "$python" || fail "could not install uv with $python.
Install either of these, then run this again:
  - Python's venv module (Debian, Ubuntu: apt-get install python3-venv; Fedora: dnf install python3)
  - uv itself (https://docs.astral.sh/uv/getting-started/installation/)
If the lines above speak of the network, PyPI cannot be reached: set PIP_INDEX_URL to your mirror, or HTTPS_PROXY."
    uv=$(find_uv) || fail "uv was installed into $UV_HOME/ but does not start there; remove that folder and run this again."
}

# Brings the environment in .venv to what uv.lock says. The first time it downloads, so it shows its progress.
install() {
    quiet=''
    [ ! -d .venv ] || quiet=--quiet
    "$uv" sync --frozen $quiet "$@"
}

# A uv that starts (a version manager's shim may not) and is new enough.
find_uv() {
    for found in "${UV:-}" uv "$PWD/$UV_HOME/bin/uv" "$PWD/$UV_HOME/pip/bin/uv" "${HOME:-/nonexistent}/.local/bin/uv"; do
        [ -n "$found" ] && new_enough "$found" && printf '%s\n' "$found" && return
    done
    return 1
}

new_enough() {
    version=$("$1" --version 2>/dev/null) || return 1
    version=${version#uv }
    case $version in
        0.[0-7] | 0.[0-7].* | 0.[0-7][!0-9]*) return 1 ;;
        [0-9]*) return 0 ;;
        *) return 1 ;;
    esac
}

# Any Python 3.8 can install uv; uv then picks a Python ≥ 3.11 of the machine, and fetches one only when there is none.
find_python() {
    for found in "${PYTHON:-}" python3.13 python3.12 python3.11 python3 python3.14 python; do
        [ -n "$found" ] && "$found" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null && printf '%s\n' "$found" && return
    done
    return 1
}

install_in_venv() {
    "$1" -m venv --clear "$UV_HOME" >/dev/null 2>&1 && "$UV_HOME/bin/python" -m pip install --quiet "$UV_REQUIREMENT"
}

# Debian's python3 comes without ensurepip, so without venv, but may have pip. --target touches nothing of the system.
install_with_pip() {
    "$1" -m pip --version >/dev/null 2>&1 && "$1" -m pip install --quiet --target "$UV_HOME/pip" "$UV_REQUIREMENT"
}

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "error: $*"
    exit 1
}
