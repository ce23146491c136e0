#!/usr/bin/env bash
# run.sh PROGRAM NAME MAX_BYTES CORPUS: search with libFuzzer for SPW_FUZZ_SECONDS (20). What is found new is kept in
# build/fuzz/corpus/NAME and is where the next run begins; an input that fails is left in build/fuzz/findings.
set -euo pipefail
program=$1 name=$2 max_bytes=$3 seeds=$4
build=$(cd "$(dirname "$program")/../.." && pwd)
mkdir -p "$build/corpus/$name" "$build/findings"
inputs=("$build/corpus/$name")
[ ! -d "$seeds" ] || inputs+=("$seeds")
exec "$program" -max_total_time="${SPW_FUZZ_SECONDS:-20}" -max_len="$max_bytes" -timeout=20 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$build/findings/$name-" "${inputs[@]}"
