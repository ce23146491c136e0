#!/usr/bin/env bash
# run.sh BUILD_DIR: what scripts/bench peers does once bench_peers is built: builds the peers in Rust and Go where a cargo
# and a go are, starts a Redis of its own where there is one, and runs them all. What is missing is said and left out.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$build/peers"
arguments=()

said() {
    echo "peers: $*" >&2
}

if ! command -v go >/dev/null; then
    said "x/time/rate and uber-go/ratelimit left out: no go"
elif (cd "$here/golang" && go build -o "$build/peers/peer-golang" .) >&2; then
    arguments+=("golang=$build/peers/peer-golang")
else
    said "x/time/rate and uber-go/ratelimit left out: they could not be built"
fi

if ! command -v cargo >/dev/null; then
    said "governor left out: no cargo"
elif (cd "$here/governor" && CARGO_TARGET_DIR="$build/peers/governor" cargo build --release -q) >&2; then
    arguments+=("governor=$build/peers/governor/release/peer-governor")
else
    said "governor left out: it could not be built"
fi

if ! command -v redis-server >/dev/null; then
    said "Redis left out: no redis-server (apt-get install redis-server libhiredis-dev)"
else
    directory=$(mktemp -d /tmp/spillway-redis-XXXXXX)
    redis-server --port 0 --unixsocket "$directory/redis.sock" --save '' --appendonly no --dir "$directory" \
        --daemonize no >"$directory/log" 2>&1 &
    redis=$!
    trap 'kill "$redis" 2>/dev/null; wait "$redis" 2>/dev/null || true; rm -rf "$directory"' EXIT
    for _ in $(seq 100); do
        [ ! -S "$directory/redis.sock" ] || break
        sleep 0.05
    done
    arguments+=("redis=$directory/redis.sock")
fi
"$build/bin/bench_peers" "${arguments[@]}"
