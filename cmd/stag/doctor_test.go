package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/internal/doctor"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	probes "github.com/stag-rdma/stag/loader/doctor"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// in runs f inside side A's namespace.
func in(t *testing.T, p *pair.Pair, f func() error) {
	t.Helper()
	if err := p.Do(pair.A, f); err != nil {
		t.Fatal(err)
	}
}

// inside runs cmd in side A's namespace.
func inside(t *testing.T, p *pair.Pair, cmd *exec.Cmd) (r result) {
	t.Helper()
	in(t, p, func() error { r = run(t, cmd); return nil })
	return r
}

// TestDoctor runs doctor against each misfortune, with text and with JSON output.
func TestDoctor(t *testing.T) {
	for name, m := range misfortunes {
		t.Run(name, func(t *testing.T) {
			p := netns.XDPPair(t, m.config)
			near := p.Ends[pair.A].Name
			if m.spoil != nil {
				in(t, p, func() error { m.spoil(t, p, near); return nil })
			}
			if m.link != "" {
				near = m.link
			}
			ask := func(more ...string) result {
				cmd := command(t, append(append([]string{"doctor", near}, m.args...), more...)...)
				if m.guest {
					defer lowMemlock(t)()
					as(cmd, m.caps...)
				}
				if m.wrap != nil {
					m.wrap(t, cmd)
				}
				return inside(t, p, cmd)
			}
			text := ask()
			text.ends(t, m.code)
			golden(t, "doctor_"+name, steady(text.stdout))
			asJSON := ask("--json")
			schema(t, "doctor", asJSON.stdout)
			report := decode[doctor.Report](t, asJSON, m.code)
			agree(t, report, text.stdout, false)
			agree(t, report, ask("-v").stdout, true)
			if m.failed != "" && !failed(report, m.failed) || report.OK != (m.code == 0) {
				t.Errorf("%q should have failed, exit code %d: %+v", m.failed, m.code, report)
			}
			if m.hinted != "" && !hinted(report, m.hinted, m.says) {
				t.Errorf("no hint %q that says %q: %+v", m.hinted, m.says, report)
			}
		})
	}
}

// volatile matches rows that describe the machine on which the tests run.
var volatile = regexp.MustCompile(`(?m)^    (Linux|network namespace|memory|open files|unprivileged BPF|confinement|transmit budget|claims|pins|processors) .*\n( +-> .*\n)?`)

// counts matches how many rows have a status.
var counts = regexp.MustCompile(`\b\d+ (OK|hints?)\b`)

// steady masks what depends on the machine.
func steady(text string) string {
	text = volatile.ReplaceAllString(text, "")
	text = counts.ReplaceAllString(text, "N $1")
	text = regexp.MustCompile(`, \d+ unknown`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`(?m)^No requirement is known to be missing; .*$`).ReplaceAllString(text, "All requirements are met.")
	text = strings.ReplaceAll(text, ", N hints", "")
	text = strings.ReplaceAll(text, ", N hint", "")
	text = regexp.MustCompile(`(?m)^\d+ rows`).ReplaceAllString(text, "N rows")
	text = regexp.MustCompile(`pid PID \([^)]*\)`).ReplaceAllString(mask(text), "pid PID (NAME)")
	text = regexp.MustCompile(`--net=/proc/\d+/`).ReplaceAllString(text, "--net=/proc/PID/")
	text = regexp.MustCompile(`another network namespace: \S+ is`).ReplaceAllString(text, "another network namespace: IFACE is")
	return unaligned(text)
}

// lowMemlock sets a memory limit that is too low for the frames. undo restores it.
func lowMemlock(t *testing.T) (undo func()) {
	var was unix.Rlimit
	rig.Must(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was))
	low := was
	low.Cur = 8 << 20
	rig.Must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &low))
	return func() { rig.Must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was)) }
}

// decode reads all of a command's standard output as one T. It fails if there is a field that
// T does not have.
func decode[T any](t *testing.T, r result, code int) (v T) {
	t.Helper()
	r.ends(t, code)
	d := json.NewDecoder(strings.NewReader(r.stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v\n%s", err, r.stdout)
	}
	if d.More() {
		t.Errorf("more than one value: %s", r.stdout)
	}
	return v
}

// agree demands that text has every row of the report. It expects rows that are OK only if whole is true.
func agree(t *testing.T, r doctor.Report, text string, whole bool) {
	t.Helper()
	for _, row := range append(r.Host, r.Link...) {
		line := regexp.MustCompile(fmt.Sprintf(`(?m)^    %s +%s +\S`, regexp.QuoteMeta(row.Name), row.Status))
		if shown := line.MatchString(text); shown != (whole || row.Status != probes.OK) || !strings.Contains(text, row.Fix) {
			t.Errorf("shown: %v: %+v\n%s", shown, row, text)
		}
		if row.Status == probes.Bad && strings.Count(text, row.Fix) < 2 {
			t.Errorf("what to do about %s is not said again at the end:\n%s", row.Name, text)
		}
	}
	if !strings.Contains(text, r.Error) {
		t.Errorf("not in the text: %s", r.Error)
	}
}

func hinted(r doctor.Report, name, says string) bool {
	for _, row := range append(r.Host, r.Link...) {
		if row.Name == name && row.Status == probes.Hint && strings.Contains(row.Detail+row.Fix, says) {
			return true
		}
	}
	return false
}

func failed(r doctor.Report, name string) bool {
	for _, row := range append(r.Host, r.Link...) {
		if row.Name == name && row.Status == probes.Bad && row.Fix != "" {
			return true
		}
	}
	return false
}

// TestDoctorOfHost: without an interface, doctor looks at the host and lists its interfaces.
func TestDoctorOfHost(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	text := inside(t, p, command(t, "doctor"))
	text.ends(t, 0)
	golden(t, "doctor", steady(text.stdout))
	asJSON := inside(t, p, command(t, "doctor", "--json"))
	schema(t, "doctor", asJSON.stdout)
	r := decode[doctor.Report](t, asJSON, 0)
	agree(t, r, text.stdout, false)
	list := strings.Join(r.Interfaces, ", ")
	if !strings.Contains(list, p.Ends[pair.A].Name) || strings.Contains(list, "lo,") || !strings.Contains(text.stdout, list) {
		t.Errorf("interfaces %s, and in the text\n%s", list, text.stdout)
	}
}

// TestDoctorLeavesNothing: doctor removes everything that it tried, and a demonstration runs afterwards.
func TestDoctorLeavesNothing(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	before := tracesOf(t)
	inside(t, p, command(t, "doctor", p.Ends[pair.A].Name)).ends(t, 0)
	if after := tracesOf(t); after != before {
		t.Errorf("%v before, %v after", before, after)
	}
	in(t, p, func() error { spoilStag(t, p, p.Ends[pair.A].Name); return nil })
}

// TestDoctorAsAnyone: doctor works for every user that runs the tests.
func TestDoctorAsAnyone(t *testing.T) {
	asJSON := run(t, command(t, "doctor", "--json"))
	schema(t, "doctor", asJSON.stdout)
	r := decode[doctor.Report](t, result{stdout: asJSON.stdout}, 0)
	if len(r.Host) == 0 || r.OK != (r.Failures() == 0) {
		t.Errorf("%+v", r)
	}
}
