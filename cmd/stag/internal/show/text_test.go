package show

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// rendered returns the output for the fixture with these options.
func rendered(t *testing.T, o Options) string {
	t.Helper()
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	l, err := o.list(engines.Answer{Sources: fixture()})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if o.JSON {
		writeJSON(&b, flatten(l), "  ")
	} else {
		o.text(&b, l)
	}
	return b.String()
}

// TestText: each subject in short, in detail, and with counters that are 0.
func TestText(t *testing.T) {
	for _, subject := range Subjects {
		t.Run(subject, func(t *testing.T) {
			text := ""
			for _, o := range []Options{{}, {Detail: true}, {All: true, Detail: true}} {
				o.Subject = subject
				one := rendered(t, o)
				if strings.HasSuffix(text, one) {
					continue // the subject has no details
				}
				text += map[bool]string{true: "-v"}[o.Detail] + map[bool]string{true: " -a"}[o.All] + "\n" + one
			}
			if bad := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == '\u202e' }); bad >= 0 {
				t.Errorf("character %q reaches the terminal", text[bad])
			}
			file := filepath.Join("testdata", subject+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if text != string(want) {
				t.Errorf("not as in %s (rewrite it with -update):\n%s", file, text)
			}
		})
	}
}

// TestWhich: rows are selected by name, by interface, and by the selectors of each subject.
func TestWhich(t *testing.T) {
	for _, c := range []struct {
		subject, iface, match string
		rows                  int
	}{
		{"devices", "", "", 3},
		{"devices", "", "eth2", 1},
		{"devices", "eth1", "", 1},
		{"devices", "eth1", "eth2", 0},
		{"devices", "", "kernel", 1},
		{"flows", "", "", 4},
		{"flows", "eth2", "", 1},
		{"flows", "", "192.0.2.2", 1},
		{"flows", "", "192.0.2.1", 2},
		{"flows", "", "::ffff:192.0.2.1", 2},
		{"flows", "", ":7174", 4},
		{"flows", "", ":99", 1},
		{"flows", "", "192.0.2.1:7174", 2},
		{"flows", "", "192.0.2.1:99", 0},
		{"flows", "", "2001:db8:1:2:3:4:5:6", 1},
		{"flows", "", "[2001:db8:1:2:3:4:5:6]", 1},
		{"flows", "", "[2001:db8:1:2:3:4:5:6]:7174", 1},
		{"flows", "", "0x100002", 1},
		{"flows", "", "1048578", 1},
		{"qps", "", "", 3},
		{"qps", "eth1", "", 2},
		{"qps", "", "2", 1},
		{"mrs", "", "", 3},
		{"mrs", "eth1", "", 2},
		{"mrs", "eth2", "", 1},
		{"mrs", "", "0xA41", 1},
		{"mrs", "", "00000a41", 1},
		{"mrs", "", "0", 0},
		{"cqs", "", "", 3},
		{"cqs", "eth1", "", 2},
		{"cqs", "", "1", 2},
		{"srqs", "", "", 2},
		{"srqs", "eth2", "", 0},
		{"srqs", "", "2", 1},
		{"clients", "", "", 2},
		{"clients", "eth2", "", 0},
		{"clients", "", "2", 1},
		{"clients", "", "ib_write_bw", 1},
		{"queues", "", "", 2},
		{"queues", "", "eth1", 2},
		{"queues", "eth2", "", 0},
		{"stats", "", "", 18},
		{"stats", "eth2", "", 2},
		{"iscsi", "", "", 2},
		{"iscsi", "eth1", "", 1},
		{"iscsi", "", "1", 1},
		{"iscsi", "", "stag:t1", 1},
		{"iscsi", "", "stag:i1", 2},
		{"luns", "", "", 2},
		{"luns", "eth2", "", 0},
		{"luns", "", "3", 1},
		{"luns", "", "other", 1},
		{"stats", "", "eth1", 14},
		{"ports", "", "", 2},
		{"ports", "", "eth3", 1},
		{"ports", "eth1", "", 1},
		{"ports", "eth2", "", 0},
	} {
		l, err := Options{Subject: c.subject, Interface: c.iface, Match: c.match}.list(engines.Answer{Sources: fixture()})
		if err != nil || l.len() != c.rows {
			t.Errorf("%s %q of %q: %d rows, %v; want %d", c.subject, c.match, c.iface, l.len(), err, c.rows)
		}
	}
}

// TestSubject: an unambiguous prefix of a subject's name is enough.
func TestSubject(t *testing.T) {
	for word, want := range map[string]string{
		"devices": "devices", "dev": "devices", "d": "devices", "flow": "flows", "qp": "qps", "qps": "qps", "mr": "mrs", "cq": "cqs", "queue": "queues", "sr": "srqs", "st": "stats", "i": "iscsi", "lun": "luns", "p": "ports",
	} {
		if got, err := Subject(word); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", word, got, err, want)
		}
	}
	for word, says := range map[string]string{
		"": "choose one of devices, flows, qps", "sessions": "choose one of devices, flows, qps", "devicess": "nothing to show", "q": `"q" can be qps or queues: write more`, "s": `"s" can be srqs or stats: write more`,
	} {
		if got, err := Subject(word); got != "" || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %q, %v; want %q", word, got, err, says)
		}
	}
}

// TestWrongWhich: a selector that can never match gives an error that says what can.
func TestWrongWhich(t *testing.T) {
	for _, c := range [][3]string{
		{"flows", "eth1", "give an address"},
		{"flows", ":0", "give an address"},
		{"flows", ":65536", "give an address"},
		{"flows", "192.0.2.1:", "give an address"},
		{"qps", "two", "give that which the list shows"},
		{"qps", "-1", "no number"},
		{"cqs", "4294967296", "no number"},
		{"mrs", "0x", "hexadecimal"},
		{"mrs", "123456789", "hexadecimal"},
	} {
		err := Options{Subject: c[0], Match: c[1]}.Check()
		if err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("show %s %s: %v, want %q", c[0], c[1], err, c[2])
		}
	}
}

// TestRates: a counter has a rate. It has none if the counter is new, or if a new engine with the same pid counts from
// 0 again.
func TestRates(t *testing.T) {
	take := func(change func(*engines.Source)) counterList {
		s := offloaded()
		change(&s)
		return stats([]engines.Source{s}, want{}).(counterList)
	}
	value := func(l counterList, name string) *counter {
		for i := range l {
			if l[i].Device == "eth1" && l[i].Queue == nil && l[i].Name == name {
				return &l[i]
			}
		}
		t.Fatalf("no counter %s", name)
		return nil
	}
	first := take(func(*engines.Source) {})
	last := first.rates(nil, time.Second)
	if r := value(first, "steered").PerSecond; r != nil {
		t.Errorf("a rate of %v without a time before", *r)
	}
	second := take(func(s *engines.Source) {
		s.Counters[0].Value += 100
		s.Counters[1].Value--
	})
	last = second.rates(last, 2*time.Second)
	if r := value(second, "steered").PerSecond; r == nil || *r != 50 {
		t.Errorf("rate %v, want 50", r)
	}
	if r := value(second, "fragment").PerSecond; r == nil || *r != 0 {
		t.Errorf("rate %v, want 0", r)
	}
	if value(second, "no_flow").PerSecond != nil {
		t.Error("a counter that shrank has a rate")
	}
	var b bytes.Buffer
	Options{}.text(&b, second)
	if !strings.Contains(b.String(), "steer.steered: 500 ") || !strings.Contains(b.String(), " 50.0/s\n") {
		t.Errorf("text: %s", b.String())
	}
	third := take(func(s *engines.Source) { s.Started = began.Add(time.Hour); s.Counters[0].Value += 1000 })
	third.rates(last, time.Second)
	if value(third, "steered").PerSecond != nil {
		t.Error("another engine with the same pid goes on with the rate")
	}
}

// TestNothing: show says why there are no rows, and what to do.
func TestNothing(t *testing.T) {
	some := engines.Answer{Sources: fixture()}
	busy := kernels()
	busy.Devices[0].Flows = 1
	failed := engines.Answer{Failed: []engines.Failure{{PID: 3, Adapter: 1, Err: engines.ErrSilent}}}
	for _, c := range []struct {
		o    Options
		a    engines.Answer
		says string
	}{
		{Options{Subject: "flows", Match: ":1"}, some, "no flows like that: stag show flows lists all"},
		{Options{Subject: "queues", Interface: "eth2"}, some, "no queues like that: stag show devices lists the interfaces, by the names that they had"},
		{Options{Subject: "flows"}, engines.Answer{Sources: []engines.Source{kernels()}}, "no flows now"},
		{Options{Subject: "flows"}, engines.Answer{Sources: []engines.Source{busy}}, "ss -tin shows them"},
		{Options{Subject: "flows"}, failed, "no answer"},
		{Options{Subject: "flows"}, engines.Answer{}, "start a program that calls rdma.Open"},
	} {
		l, err := c.o.list(c.a)
		if err != nil {
			t.Fatal(err)
		}
		lines := c.o.notes(c.a, l)
		if last := lines[len(lines)-1]; len(lines) != 1 || !strings.Contains(last, c.says) {
			t.Errorf("%+v: %q, want %q", c.o, lines, c.says)
		}
		var b bytes.Buffer
		writeJSON(&b, flatten(l), "  ")
		if b.String() != "[]\n" {
			t.Errorf("JSON of nothing: %q", b.String())
		}
		b.Reset()
		c.o.text(&b, l)
		if b.Len() != 0 {
			t.Errorf("text of nothing: %q", b.String())
		}
	}
}

// TestUser: show names the user of an engine that another user runs.
func TestUser(t *testing.T) {
	a := fixture()
	for i := range a {
		a[i].UID++
	}
	uid := os.Geteuid() + 1
	for subject, want := range map[string]string{
		"devices": fmt.Sprintf("pid 4711 uid %d adapter 1 comm storage", uid),
		"flows":   fmt.Sprintf(`users:(("storage",pid=4711,uid=%d,adapter=1,qp=2))`, uid),
	} {
		l, err := Options{Subject: subject}.list(engines.Answer{Sources: a})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		Options{Subject: subject}.text(&b, l)
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s: %s", subject, b.String())
		}
	}
}
