package perf

import (
	"strings"
	"testing"
	"time"
)

// plain returns a bandwidth test with perftest's defaults.
func plain(t Test) Options {
	return Options{Test: t, KernelPort: true, Port: 18515, Size: 64, Iterations: 5000, QPs: 1, TxDepth: 128, RxDepth: 512}
}

// TestCheck: Check refuses options that contradict each other, and says what to do.
func TestCheck(t *testing.T) {
	for says, change := range map[string]func(*Options){
		"-Q 1025: choose 1 to 1024":          func(o *Options) { o.TxDepth, o.Moderation = 4096, 1025 },
		"-Q 129: more than -t 128":           func(o *Options) { o.Moderation = 129 },
		"-Q -1":                              func(o *Options) { o.Moderation = -1 },
		"-l -1":                              func(o *Options) { o.List = -1 },
		"-l 129: more than -t 128":           func(o *Options) { o.List = 129 },
		"-l 386: with -r 512 choose":         func(o *Options) { o.TxDepth, o.List = 4096, 386 },
		"-l 6: choose a multiple of -Q 4":    func(o *Options) { o.List, o.Moderation = 6, 4 },
		"-n 5000: choose a multiple of -l 3": func(o *Options) { o.List = 3 },
		"-I -1: choose 0":                    func(o *Options) { o.Inline = -1 },
		"-I: a Read sends no data":           func(o *Options) { o.Test, o.Inline = ReadBW, 1 },
		"-f -1: choose":                      func(o *Options) { o.Duration, o.Margin = time.Second, -time.Second },
		"-f has no meaning":                  func(o *Options) { o.Margin = time.Second },
		"-f 1: two margins take all of -D 2": func(o *Options) { o.Duration, o.Margin = 2*time.Second, time.Second },
		"-f and --run_infinitely":            func(o *Options) { o.Duration, o.Margin, o.Endless = time.Hour, 1, true },
		"-a and --run_infinitely":            func(o *Options) { o.Duration, o.All, o.Endless = time.Hour, true, true },
		"-U keeps every latency: give":       func(o *Options) { o.Test, o.Duration, o.Unsorted = SendLat, time.Second, true },
		"-U keeps every latency: choose -n":  func(o *Options) { o.Test, o.Iterations, o.Unsorted = SendLat, 10_000_001, true },
		"-n 0":                               func(o *Options) { o.Iterations = 0 },
		"-D 0.009":                           func(o *Options) { o.Duration = 9 * time.Millisecond },
		"MiB of memory would be needed":      func(o *Options) { o.Size, o.Verify = MaxSize, true },
	} {
		o := plain(SendBW)
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	for _, change := range []func(*Options){
		func(*Options) {},
		func(o *Options) { o.Moderation = 128 },
		func(o *Options) { o.TxDepth, o.List, o.Iterations = 4096, 385, 385 },
		func(o *Options) { o.List, o.Moderation = 100, 25 },
		func(o *Options) { o.Duration, o.List = time.Second, 3 },
		func(o *Options) { o.Duration, o.Margin = 2*time.Second, time.Second-1 },
		func(o *Options) { o.Test, o.TxDepth, o.RxDepth, o.List = WriteBW, 64, 1, 50 },
	} {
		o := plain(SendBW)
		change(&o)
		if err := o.Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestModeration: perftest's defaults, in messages for each completion.
func TestModeration(t *testing.T) {
	for _, c := range []struct {
		change func(*Options)
		size   int
		want   uint64
	}{
		{func(*Options) {}, 64, 100},
		{func(*Options) {}, 8192, 100},
		{func(*Options) {}, 8193, 1},
		{func(o *Options) { o.TxDepth = 20 }, 64, 20},
		{func(o *Options) { o.List = 16 }, 65536, 16},
		{func(o *Options) { o.Moderation = 7 }, 65536, 7},
		{func(o *Options) { o.List, o.Moderation = 16, 8 }, 64, 8},
		{func(o *Options) { o.Test = WriteLat }, 64, 1},
	} {
		o := plain(WriteBW)
		c.change(&o)
		if got := o.moderation(c.size); got != c.want {
			t.Errorf("%+v: %d for %d octets, want %d", o, got, c.size, c.want)
		}
	}
}

// TestMargins: messages that complete between the margins are measured, over the time between the margins. If the
// round was cut short within the first margin, all messages are measured.
func TestMargins(t *testing.T) {
	o := plain(WriteBW)
	o.Duration, o.Margin, o.TxDepth = 10*time.Second, 2*time.Second, 10
	m := o.newMeter()
	at := func(s float64) time.Time { return m.begun.Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct {
		n      uint64
		second float64
		counts bool
	}{{100, 1, false}, {7, 1.999, false}, {10, 2, true}, {30, 5, true}, {50, 7.999, true}, {1000, 8, false}, {1, 11, false}} {
		if got := m.completed(c.n, at(c.second)); got != c.counts {
			t.Errorf("%d messages after %v s count: %v", c.n, c.second, got)
		}
	}
	if m.sofar() != 1198 || m.inside != 90 {
		t.Errorf("%+v", m)
	}
	for end, want := range map[float64]struct {
		n    uint64
		took time.Duration
	}{1.5: {500, 1500 * time.Millisecond}, 3: {90, time.Second}, 8: {90, 6 * time.Second}, 12: {90, 6 * time.Second}} {
		if n, took := m.measured(90, 500, at(end)); n != want.n || took != want.took {
			t.Errorf("ended after %v s: %d messages in %v, want %+v", end, n, took, want)
		}
	}
	o.Margin, o.NoPeak = 0, true
	m = o.newMeter()
	m.completed(100, at(9))
	if n, took := m.measured(m.inside, m.total, at(10)); n != 100 || took > 10*time.Second || m.peak != 0 {
		t.Errorf("%d messages in %v, peak %v", n, took, m.peak)
	}
}

// TestMarginsEmpty: a round without a message that counts is an error, unless the round was cut short.
func TestMarginsEmpty(t *testing.T) {
	o := small(WriteBW)
	o.Duration, o.Margin = time.Second, 400*time.Millisecond
	run := newNotes(t, o).l.run
	if err := run.nothing(64); err == nil || !strings.Contains(err.Error(), "choose a longer -D, or a smaller -f") {
		t.Error(err)
	}
	run.interrupted = func() bool { return true }
	if err := run.nothing(64); err != nil {
		t.Error(err)
	}
}

// TestNumbered: sizes follow each other, and start again only if the run is endless.
func TestNumbered(t *testing.T) {
	o := plain(WriteBW)
	count := func() (rounds uint32) {
		for number := range o.numbered() {
			if rounds++; number != rounds {
				t.Fatalf("round %d is number %d", rounds, number)
			}
			if rounds == 1000 {
				break
			}
		}
		return rounds
	}
	if n := count(); n != 1 {
		t.Errorf("%d rounds of one size", n)
	}
	o.All = true
	if n := count(); n != 23 {
		t.Errorf("%d rounds of all sizes", n)
	}
	o.All, o.Endless = false, true
	if n := count(); n != 1000 {
		t.Errorf("%d rounds without an end", n)
	}
}

// TestInline: messages up to the limit are sent inline.
func TestInline(t *testing.T) {
	for _, test := range []Test{WriteBW, SendBW, WriteLat, SendLat} {
		o := small(test)
		o.Inline = 100
		l := newNotes(t, o).l
		if wr := l.message(1); len(wr.Inline) != 100 || wr.SGL != nil {
			t.Errorf("%s: %+v", test, wr)
		}
		l.run.Inline = 99
		if wr := l.message(1); wr.Inline != nil || len(wr.SGL) != 1 {
			t.Errorf("%s: %+v", test, wr)
		}
	}
}
