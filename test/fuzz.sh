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
while read -r package target; do
	echo "== ${package#"$module"/} $target, $time"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" </dev/null
done <<<"$targets"
