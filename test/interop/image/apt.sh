# Functions of the scripts that take packages of another Debian than this machine's. A script
# sets label, its name in messages, and work, a directory of its own, and then calls suites.

mirror=${STAG_INTEROP_MIRROR:-http://deb.debian.org/debian}

say() { echo "$label: $*" >&2; }
die() { # CODE TEXT...
	local code=$1
	shift
	say "$@"
	exit "$code"
}

# suites fetches the lists of suites. apt then takes packages of them.
suites() { # SUITE...
	local s
	mkdir -p "$work"/{lists/partial,cache/archives/partial}
	: >"$work/status"
	for s; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $s main"
	done >"$work/sources"
	apt apt-get update >/dev/null
}

# apt runs a program of apt for these suites, with lists and settings of its own.
apt() { # PROGRAM ARGUMENT...
	local program=$1 out
	shift
	out=$("$program" -q -o Dir::Etc::SourceList="$work/sources" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$work/lists" \
		-o Dir::Cache="$work/cache" -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any "$@" 2>"$work/apt.log") && echo "$out" && return
	local why
	why=$(grep -E '^(E|Err|W):' "$work/apt.log" | tail -n 1 || tail -n 1 "$work/apt.log")
	grep -qE 'Could not (resolve|connect)|Temporary failure|Unable to connect|Connection (failed|timed out|refused)|Failed to fetch|Some index files failed' "$work/apt.log" &&
		die 3 "the package mirror cannot be reached, so nothing was tried: $program $1: $why"
	die 1 "$program $1 failed: $why"
}
