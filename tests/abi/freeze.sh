#!/usr/bin/env bash
# Keeps the client header of a release for ever: tests/abi/frozen/spillway-<major>.<minor>.h, of the layout it is of.
#
#     tests/abi/freeze.sh           at a release: refuses to change a header that is frozen already
#     tests/abi/freeze.sh --again   before the release: the layout may still change
set -euo pipefail
cd "$(dirname "$0")/../.."

python3 clients/c/bundle.py --check
major=$(sed -n 's/^#define SPW_LAYOUT_MAJOR *\([0-9]*\)u$/\1/p' shm/spw_layout.h)
minor=$(sed -n 's/^#define SPW_LAYOUT_MINOR *\([0-9]*\)u$/\1/p' shm/spw_layout.h)
frozen=tests/abi/frozen/spillway-$major.$minor.h
if [ -e "$frozen" ] && ! cmp -s clients/c/spillway.h "$frozen" && [ "${1:-}" != --again ]; then
    echo "$frozen is frozen and differs from clients/c/spillway.h: raise SPW_LAYOUT_MINOR, or --again before a release" >&2
    exit 1
fi
mkdir -p tests/abi/frozen
cp clients/c/spillway.h "$frozen"
echo "$frozen"
