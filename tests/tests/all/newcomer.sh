#!/usr/bin/env bash
# Plays a newcomer in the workspace, for newcomer.rs: starts `make run`, runs a script of printed commands in a
# shell, presses Ctrl-C. The network is of its own, so that the printed ports are free, and so is the folder var.
#
# newcomer.sh SHELL SCRIPT VAR LOG: exits with the status of the script, or 99 when something else fails.
set -euo pipefail
# Ctrl-C reaches a job of its own process group, as in a terminal.
set -m
shell=$1 script=$2 var=$3 log=$4

fail() {
    echo "newcomer.sh: $*" >&2
    exit 99
}

ip link set lo up
mount --bind "$var" var
make run >"$log" 2>&1 &
run=$!
for _ in {1..1200}; do
    if grep -q '^Ctrl-C stops' "$log"; then break; fi
    kill -0 "$run" 2>/dev/null || fail "make run has ended"
    sleep 0.1
done
grep -q '^Ctrl-C stops' "$log" || fail "make run is not ready after two minutes"

status=0
"$shell" "$script" || status=$?

kill -INT -- "-$run"
wait "$run" || true
# Nothing else runs in this namespace. A process that was ended takes a moment to be gone.
for _ in {1..100}; do
    left=$(pgrep -l 'nginx|redis-server|shortlink' || true)
    [[ -n $left ]] || exit "$status"
    sleep 0.1
done
fail "still running: $left"
