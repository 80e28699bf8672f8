#!/bin/sh
# Print the path of a Python >= 3.12 that can make virtual environments; say in one sentence what to do when there is none.
# Looks at PATH, at pyenv's versions, at uv's own; as root on Debian it installs python3-venv when that is what lacks.
set -u

good() { # a real interpreter of 3.12 or later (a pyenv shim may name one that is not installed)
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null
}
can_venv() {
    "$1" -c 'import venv, ensurepip' 2>/dev/null
}
real() {
    "$1" -c 'import sys; print(sys.executable)'
}

apt_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "installing $1" >&2
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$1"; } >/dev/null 2>&1
}

partial=""
for name in python3.13 python3.14 python3.12 python3; do
    found=$(command -v "$name" 2>/dev/null) || continue
    good "$found" || continue
    if can_venv "$found"; then
        real "$found"
        exit 0
    fi
    partial=${partial:-$found}
done
newest=""
for found in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python3; do
    if [ -x "$found" ] && good "$found" && can_venv "$found"; then
        newest=$found
    fi
done
if [ -n "$newest" ]; then
    real "$newest"
    exit 0
fi
if [ -n "$partial" ]; then
    version=$("$partial" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if apt_install "python$version-venv" && can_venv "$partial"; then
        real "$partial"
        exit 0
    fi
    echo "$partial lacks the module venv; run \`sudo apt-get install python3-venv\` and try again." >&2
    exit 1
fi
# uv brings an interpreter of its own where the network has it (UV_PYTHON_INSTALL_MIRROR names another place to fetch it from).
# uv itself comes from the package index, into a folder of this checkout; any Python that can make a virtual environment will do.
uv=$(command -v uv 2>/dev/null || true)
old=$(command -v python3 2>/dev/null || true)
why="there is no uv to fetch one"
if [ -z "$uv" ] && [ -n "$old" ]; then
    tools=$(dirname "$0")/../.seatrial/uv
    can_venv "$old" || apt_install python3-venv || true
    if [ -x "$tools/bin/uv" ] || { "$old" -m venv "$tools" && "$tools/bin/pip" install -q --disable-pip-version-check uv; } >/dev/null 2>&1; then
        uv=$tools/bin/uv
    fi
fi
if [ -n "$uv" ]; then
    echo "no Python >= 3.12 here: asking uv for one" >&2
    if said=$("$uv" python install 3.13 2>&1) && found=$(UV_PYTHON_PREFERENCE=only-managed "$uv" python find 3.13 2>/dev/null) && good "$found"; then
        echo "$found"
        exit 0
    fi
    why="uv could not fetch one ($(printf '%s\n' "$said" | tail -n 1 | tr -s ' '))"
fi
here=$("${old:-false}" -c 'import sys; print("Python %d.%d" % sys.version_info[:2])' 2>/dev/null) || here="none"
echo "Seatrial needs Python 3.12 or later; here is $here, and $why; install one (Debian 13: \`apt-get install python3 python3-venv\`; Debian 12: pyenv, or uv where it reaches its downloads) and try again." >&2
exit 1
