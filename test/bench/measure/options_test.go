package measure

import (
	"strings"
	"testing"
	"time"
)

func good() Options {
	return Options{Rounds: 1, Time: time.Second, MTUs: []int{1500}}
}

func TestOptionsSayWhatIsWrong(t *testing.T) {
	if err := good().Check(); err != nil {
		t.Errorf("good options: %v", err)
	}
	for _, c := range []struct {
		name string
		edit func(*Options)
		want string
	}{
		{"no rounds", func(o *Options) { o.Rounds = 0 }, "0 rounds: give 1 or more"},
		{"no time", func(o *Options) { o.Time = 0 }, "must be above 0"},
		{"time before", func(o *Options) { o.Warm = -time.Second }, "not below"},
		{"no MTU", func(o *Options) { o.MTUs = nil }, "no MTU: give one"},
		{"small MTU", func(o *Options) { o.MTUs = []int{1500, 575} }, "MTU 575"},
		{"large MTU", func(o *Options) { o.MTUs = []int{9001} }, "MTU 9001"},
		{"unknown table", func(o *Options) { o.Tables = []string{"goodput", "speed"} }, `no table "speed": there are choice, goodput, `},
	} {
		o := good()
		c.edit(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// names returns the cases that the options select, one per line.
func names(t *testing.T, o Options) (list []string) {
	t.Helper()
	tables, err := o.tables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		for _, r := range table.Rows {
			list = append(list, table.Name+": "+r.Case.String())
		}
	}
	return list
}

func TestOptionsSelect(t *testing.T) {
	o := good()
	o.Tables, o.Only = []string{"goodput"}, "raw AF_XDP;write no CRC, MTU 1500, NAPI threads"
	const want = `goodput: raw AF_XDP, MTU 1500, NAPI inline, messages of 65536, 1 connections
goodput: raw AF_XDP, MTU 1500, NAPI threads, messages of 65536, 1 connections
goodput: write no CRC, MTU 1500, NAPI threads, messages of 65536, 1 connections`
	if got := strings.Join(names(t, o), "\n"); got != want {
		t.Errorf("selected\n%s, want\n%s", got, want)
	}
	o.Only = "nothing that there is"
	if _, err := o.tables(); err == nil || !strings.Contains(err.Error(), "nothing is left to measure") {
		t.Errorf("no row: %v", err)
	}
}

// Every case has a name of its own. Otherwise ratios and --only would confuse cases.
func TestCasesDiffer(t *testing.T) {
	o := good()
	o.MTUs, o.Full = []int{1500, 3506}, true
	seen := map[string]bool{}
	for _, name := range names(t, o) {
		if seen[name] {
			t.Errorf("twice: %s", name)
		}
		seen[name] = true
	}
}

// Each load has a whole number of batches, within limits.
func TestLoads(t *testing.T) {
	for _, n := range sizes(true) {
		l := sized(n)
		if out := l.depth * n; out < 64<<10 || out > 4<<20 {
			t.Errorf("messages of %d: %d octets outstanding", n, out)
		}
		if l.batch < 1 || l.depth%l.batch != 0 || l.memory()%n != 0 {
			t.Errorf("messages of %d: %+v", n, l)
		}
	}
	for _, n := range crowds {
		if l := crowded(n); l.batch < 1 || l.depth < 2 || l.depth%l.batch != 0 {
			t.Errorf("%d connections: %+v", n, l)
		}
	}
}
