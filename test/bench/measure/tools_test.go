package measure

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
)

// printed returns the recorded output of a tool.
func printed(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "tools", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestReadTools(t *testing.T) {
	bandwidth := func(text []byte) (Values, error) {
		v, err := readUCX(text, "overall_bw")
		return Values{Gbps: v}, err
	}
	for _, c := range []struct {
		file string
		read func([]byte) (Values, error)
		want Values
	}{
		{"iperf3.json", readIperf3, Values{Gbps: 41.5}},
		{"sockperf.txt", readSockperf, Values{"p50_us": 26.144, "p99_us": 36.97, "p999_us": 59.729, "max_us": 1459.119}},
		{"ucx_perftest.csv", bandwidth, Values{Gbps: 0.12}},
	} {
		whole := printed(t, c.file)
		if got, err := c.read(whole); err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.file, got, err, c.want)
		}
		for _, garbage := range []string{"", "killed\n", string(whole[:len(whole)/3]), strings.Map(noDigits, string(whole))} {
			if got, err := c.read([]byte(garbage)); err == nil {
				t.Errorf("%s: %q is read as %v", c.file, garbage, got)
			}
		}
	}
	if _, err := readIperf3([]byte(`{"end": {}, "error": "unable to connect to server"}`)); err == nil || !strings.Contains(err.Error(), "unable to connect") {
		t.Errorf("iperf3's own error: %v", err)
	}
}

func noDigits(r rune) rune {
	if r >= '0' && r <= '9' {
		return 'x'
	}
	return r
}

func TestListensIn(t *testing.T) {
	for line, want := range map[string]bool{
		"   0: 010200C0:4854 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1": true,
		"   0: 010200C0:4854 020200C0:1234 01 00000000:00000000 00:00000000 00000000     0        0 1": false,
		"   0: 010200C0:4855 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1": false,
		"  sl  local_address rem_address   st tx_queue":                                                false,
		"": false,
	} {
		if listensIn("  sl  local_address rem_address   st\n"+line+"\n", toolPort) != want {
			t.Errorf("%q: not %v", line, want)
		}
	}
}

// fake returns a tool that is a shell script in the search path.
func fake(t *testing.T, script string) tool {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "faketool"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return tool{name: "faketool"}
}

// TestToolFails checks that a failing tool ends, and that the error says what happened.
func TestToolFails(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	for name, c := range map[string]struct {
		script, want string
		patience     time.Duration
	}{
		"server fails":         {"echo some words; echo cannot bind >&2; exit 3", `faketool: exit status 3: "cannot bind"`, time.Minute},
		"server ends":          {"exit 0", `faketool: has ended`, time.Minute},
		"server never listens": {"exec sleep 600", "faketool: has not finished in time", 300 * time.Millisecond},
		"server is killed":     {"kill -9 $$", "signal: killed", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			m := match{tool: fake(t, c.script), alike: Case{MTU: 1500}, patience: c.patience}
			if _, err := m.play(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestProcessEndsWithItsContext checks that a tool that hangs is killed when the run is
// interrupted, and that no process is left.
func TestProcessEndsWithItsContext(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	x, err := startProcess(ctx, p, from, fake(t, "exec sleep 600").name, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer x.stop()
	interrupt()
	if _, err := x.output(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := unix.Kill(x.cmd.Process.Pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("it still runs: %v", err)
	}
}

func TestToolsStandBehindTheBase(t *testing.T) {
	installed := tools
	defer func() { tools = installed }()
	row := func(t tool, c Case, _ Options) *Row { c.Name = t.name; return &Row{Case: c} }
	tools = []tool{
		{name: "sh", rows: map[string]func(tool, Case, Options) *Row{"goodput": row}},
		{name: "no-such-program", rows: map[string]func(tool, Case, Options) *Row{"goodput": row}},
		{name: "cat", rows: map[string]func(tool, Case, Options) *Row{"latency": row}},
	}
	table := &Table{Name: "goodput", Rows: []*Row{
		{Case: Case{Name: kernelTCP, MTU: 1500, NAPI: "threads"}}, {Case: Case{Name: "write offloaded", MTU: 1500}}, {Case: Case{Name: kernelTCP, MTU: 3506}},
	}}
	table.addTools(Options{})
	var got []string
	for _, r := range table.Rows {
		got = append(got, r.Case.String())
	}
	want := "kernel TCP, MTU 1500, NAPI threads; sh, MTU 1500, NAPI threads; write offloaded, MTU 1500; kernel TCP, MTU 3506; sh, MTU 3506"
	if strings.Join(got, "; ") != want {
		t.Errorf("%q", got)
	}
	if missing := missingTools(); len(missing) != 1 || missing[0] != "no-such-program" {
		t.Errorf("missing: %q", missing)
	}
}

// TestToolsRun checks that every installed tool measures something between two
// namespaces.
func TestToolsRun(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	o := Options{Time: 100 * time.Millisecond}
	for _, tool := range tools {
		for table, row := range tool.rows {
			t.Run(tool.name+" "+table, func(t *testing.T) {
				need.Tool(t, tool.name)
				v, err := row(tool, Case{Name: kernelTCP, MTU: 1500, NAPI: "inline", Message: 64}, o).run(t.Context())
				if err != nil || len(v) == 0 {
					t.Fatalf("%v, %v", v, err)
				}
				for f, x := range v {
					if x <= 0 {
						t.Errorf("%s is %v", f, x)
					}
				}
				t.Log(v)
			})
		}
	}
}
