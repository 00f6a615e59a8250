package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/stag-rdma/stag/test/rig"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares text, in which volatile parts are already masked, with testdata/golden/<name>.txt.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name+".txt")
	if *update {
		rig.Must(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: make it with go test ./cmd/stag -update", err)
	}
	if text != string(want) {
		t.Errorf("not as in %s (rewrite it with go test ./cmd/stag -update):\n%s", file, text)
	}
}

// schema demands that text is one JSON value that matches testdata/schema/<name>.json.
func schema(t *testing.T, name, text string) {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(filepath.Join("testdata", "schema", name+".json"))
	rig.Must(t, err)
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestSchemas: each schema is of draft 2020-12, and every object in it lists all of its members, so that a test
// notices a new member.
func TestSchemas(t *testing.T) {
	list, err := filepath.Glob("testdata/schema/*.json")
	rig.Must(t, err)
	for _, file := range list {
		text, err := os.ReadFile(file)
		rig.Must(t, err)
		var v map[string]any
		rig.Must(t, json.Unmarshal(text, &v))
		if v["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
			t.Errorf("%s: $schema is %v", file, v["$schema"])
		}
		if _, err := jsonschema.NewCompiler().Compile(file); err != nil {
			t.Error(err)
		}
		closed(t, file, v)
	}
}

// closed fails if a schema has an object that accepts unlisted members.
func closed(t *testing.T, where string, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		open := v["additionalProperties"] == nil || v["additionalProperties"] == true
		if _, lists := v["properties"].(map[string]any); (lists || v["type"] == "object") && open {
			t.Errorf("%s: an object takes any member: say what additionalProperties are, or false", where)
		}
		for name, below := range v {
			closed(t, where+"/"+name, below)
		}
	case []any:
		for _, below := range v {
			closed(t, where, below)
		}
	}
}

// masks are the parts of output that differ between machines and runs.
var masks = []struct {
	volatile *regexp.Regexp
	mask     string
}{
	{regexp.MustCompile(`\bs([ab])[0-9a-f]{7,}\b`), "veth-$1"},
	{regexp.MustCompile(`\bpid \d+`), "pid PID"},
	{regexp.MustCompile(`\bid \d+`), "id ID"},
	{regexp.MustCompile(`on interface \d+`), "on interface N"},
	{regexp.MustCompile(`one of [^\n"]*`), "one of ..."},
	{regexp.MustCompile(`-o \d+ /run`), "-o UID /run"},
	{regexp.MustCompile(`open /run/stag/\d+-\d+-`), "open /run/stag/NETNS-N-"},
	{regexp.MustCompile(`\b0x[0-9a-f]{8}\b`), "STAG"},
	{regexp.MustCompile(`((?:\d+\.){3}\d+|[0-9a-f:]\]):\d{4,5}\b`), "$1:PORT"},
	{regexp.MustCompile(`\bport \d{4,5}\b`), "port PORT"},
	{regexp.MustCompile(`\b\d+(?:\.\d+)? (s|ms|us|ns|[KMG]b/s|[KMG]i?B/s)([^\w/]|$)`), "N $1$2"},
	{regexp.MustCompile(`\b(?:\d+(?:\.\d+)?(?:h|m|s|ms|µs|us|ns))+\b`), "DURATION"},
}

// mask replaces the volatile parts that all commands print: names and numbers that the machine gives, STags, ports
// behind addresses, times and rates.
func mask(text string) string {
	for _, m := range masks {
		text = m.volatile.ReplaceAllString(text, m.mask)
	}
	return text
}

var spaces = regexp.MustCompile(` {2,}`)

// unaligned removes the widths of columns, which depend on numbers.
func unaligned(text string) string { return spaces.ReplaceAllString(text, "  ") }

// TestMask: mask replaces volatile text and leaves the rest.
func TestMask(t *testing.T) {
	for text, want := range map[string]string{
		"sa01234abc to 192.0.2.2:40123":         "veth-a to 192.0.2.2:PORT",
		"[::1]:7174, [2001:db8::2]:65535":       "[::1]:PORT, [2001:db8::2]:PORT",
		"took 1.234 s, 4.20 Gb/s, 17 MiB/s":     "took N s, N Gb/s, N MiB/s",
		"write to 0x1234abcd at offset 4096":    "write to STAG at offset 4096",
		"held by pid 4711, program id 12":       "held by pid PID, program id ID",
		"waited 1m2.5s and 17ms, of 3 rounds":   "waited DURATION and DURATION, of 3 rounds",
		"8388608 octets in 32 messages, QP 0x2": "8388608 octets in 32 messages, QP 0x2",
		"MTU 1500, 1 queue, error 1/1/00, 9 sa": "MTU 1500, 1 queue, error 1/1/00, 9 sa",
	} {
		if got := mask(text); got != want {
			t.Errorf("%q is masked to %q, want %q", text, got, want)
		}
	}
}
