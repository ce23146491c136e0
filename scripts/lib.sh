# Shared by the scripts here: `source` it first. Strict mode, the repository's root, and a PATH on which tools that
# `go install` brought are found.
# shellcheck shell=bash
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

[ -d /usr/local/go/bin ] && PATH=$PATH:/usr/local/go/bin
if command -v go >/dev/null; then
    PATH=$PATH:$(go env GOPATH)/bin
fi
PATH=$PATH:$ROOT/.venv/bin
export PATH

JOBS=${JOBS:-$(nproc)}

say() {
    printf '== %s\n' "$*"
}

# build PRESET [TARGET...]: configure and build one preset, all of it or these targets. Debian's python3 has the modules
# that the tests need.
build() {
    local preset=$1
    shift
    cmake --preset "$preset" -DPython3_EXECUTABLE=/usr/bin/python3 --log-level=WARNING &&
        cmake --build --preset "$preset" --parallel "$JOBS" ${1:+--target "$@"}
}
