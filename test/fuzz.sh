#!/bin/bash
# Runs every fuzz target of the module for the given time each (default 10s).
# usage: bash test/fuzz.sh [TIME]
set -euo pipefail
time=${1:-10s}
module=$(go list -m)

# Lines of go test's JSON name each target next to its package.
list=$(go test -run '^$' -list '^Fuzz' -json ./...) || {
	echo "fuzz: the tests do not build: run 'go vet ./...'" >&2
	exit 1
}
targets=$(sed -n 's/.*"Package":"\([^"]*\)".*"Output":"\(Fuzz[^\\"]*\)\\n".*/\1 \2/p' <<<"$list")
[ -n "$targets" ] || {
	echo "fuzz: found no fuzz target" >&2
	exit 1
}
# fuzz runs one target. go test may fail with nothing but "context deadline
# exceeded" when the time is over while an input is being worked on. That is no
# find: a find says where the failing input was written.
fuzz() { # PACKAGE TARGET
	local found=0
	go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "$1" </dev/null >"$log" 2>&1 || found=1
	if grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
		found=0
		sed -i '/FAIL/d; s/context deadline exceeded/the time was over while an input was being worked on/' "$log"
	fi
	cat "$log"
	return $found
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

while read -r package target; do
	echo "== ${package#"$module"/} $target, $time"
	fuzz "$package" "$target"
done <<<"$targets"
