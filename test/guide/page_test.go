package guide

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/test/need"
)

// step is a block of a page:
//
//	sh WHERE           run it on left, right or both; its exit code must be 0
//	sh WHERE waits     start it; it must end with exit code 0 by `finish`
//	sh WHERE stays     start it; `ends` sends Ctrl-C, and its exit code must be 0
//	text               the output of the step before, except numbers
type step struct {
	line       int // line number in the page
	where, how string
	text       string
	shown      string // text block after the step
}

var fence = regexp.MustCompile("^```([a-z]*)(?: ([a-z]+))?(?: ([a-z]+))?$")

// steps parses a page.
func steps(page string) (list []step, err error) {
	var in *step
	text := false
	for i, line := range strings.Split(page, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case m != nil && (in != nil || text): // end of the block
			in, text = nil, false
		case m == nil && in != nil:
			in.text += line + "\n"
		case m == nil && text:
			list[len(list)-1].shown += line + "\n"
		case m == nil:
		case m[1] == "text" && len(list) > 0:
			text = true
		case m[1] == "sh" && m[2] != "":
			list = append(list, step{line: i + 1, where: m[2], how: m[3]})
			in = &list[len(list)-1]
		default:
			return nil, fmt.Errorf("line %d: a block %q, which nobody can follow", i+1, line)
		}
	}
	return list, nil
}

// walk is the state of following a page.
type walk struct {
	*testing.T
	hosts map[string]*machine
	jobs  map[string][]*job // running jobs, by host
}

func TestTwoMachines(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	need.Tool(t, "bash", "ip", "nsenter", "unshare", "mount", "hostname", "sleep")
	page, err := os.ReadFile("../../docs/two-machines.md")
	if err != nil {
		t.Fatal(err)
	}
	list, err := steps(string(page))
	if err != nil || len(list) < 10 {
		t.Fatalf("%d steps: %v", len(list), err)
	}
	bin := build(t)
	left, right := newMachine(t, "left", bin), newMachine(t, "right", bin)
	cable(t, left, right)
	w := &walk{t, map[string]*machine{"left": left, "right": right}, map[string][]*job{}}
	before := w.settings()
	for _, s := range list {
		w.do(s)
	}
	for host, jobs := range w.jobs {
		if len(jobs) != 0 {
			t.Errorf("%s still runs %q when the page ends", host, jobs[0].text)
		}
	}
	if after := w.settings(); after != before {
		t.Errorf("the interfaces are not as they were before.\nBefore:\n%s\nAfter:\n%s", before, after)
	}
}

// do runs one step.
func (w *walk) do(s step) {
	w.Helper()
	hosts := []string{s.where}
	if s.where == "both" {
		hosts = []string{"left", "right"}
	}
	for _, host := range hosts {
		m := w.hosts[host]
		if m == nil {
			w.Fatalf("line %d: nobody is called %q", s.line, host)
		}
		w.Logf("%s line %d, %s %s: %s", time.Now().Format("05.000"), s.line, host, s.how, strings.TrimSpace(s.text))
		var out string
		switch s.how {
		case "":
			out = m.start(w.T, s.text).end(w.T)
		case "waits", "stays":
			j := m.start(w.T, s.text)
			w.jobs[host] = append(w.jobs[host], j)
			w.settled(j)
		case "ends":
			w.last(host).interrupt(w.T)
			out = w.finish(host)
		case "finish":
			out = w.finish(host)
		default:
			w.Fatalf("line %d: a step that %q", s.line, s.how)
		}
		if out != "" {
			w.Log(out)
		}
		w.compare(s, out)
		if s.how == "" {
			w.reap(host, s)
		}
	}
}

// settled waits until a job listens or has ended.
func (w *walk) settled(j *job) {
	w.Helper()
	for range 100 {
		select {
		case err := <-j.done:
			j.done <- err
			return
		case <-time.After(20 * time.Millisecond):
		}
		if strings.TrimSpace(j.out.String()) != "" {
			break // the job prints a line when it is ready
		}
	}
	time.Sleep(300 * time.Millisecond)
}

// reap removes the other host's waiting jobs that have ended. It runs before a step
// that needs their port again.
func (w *walk) reap(host string, s step) {
	w.Helper()
	for other, jobs := range w.jobs {
		if other == host || len(jobs) == 0 || !strings.Contains(s.text, "stag perf") {
			continue
		}
		w.finish(other)
	}
}

func (w *walk) last(host string) *job {
	w.Helper()
	jobs := w.jobs[host]
	if len(jobs) == 0 {
		w.Fatalf("nothing runs on %s", host)
	}
	return jobs[len(jobs)-1]
}

// finish waits for the jobs on host.
func (w *walk) finish(host string) (out string) {
	w.Helper()
	for _, j := range w.jobs[host] {
		out += j.end(w.T)
	}
	w.jobs[host] = nil
	return out
}

var numbers = regexp.MustCompile(`[0-9]+(\.[0-9]+)*`)

// plain returns a line without the parts that differ between runs.
func plain(line string) string {
	return strings.Join(strings.Fields(numbers.ReplaceAllString(line, "N")), " ")
}

// compare looks for each line of the page's text block in the output.
func (w *walk) compare(s step, out string) {
	w.Helper()
	said := map[string]bool{}
	for _, line := range strings.Split(out, "\n") {
		said[plain(line)] = true
	}
	for _, line := range strings.Split(strings.TrimSpace(s.shown), "\n") {
		if line = plain(line); line != "" && line != "..." && !said[line] {
			w.Errorf("line %d shows %q, which was not said:\n%s", s.line, line, out)
		}
	}
}

// settings returns the settings that `stag load --tune` could have changed on both
// machines, and stag's pins.
func (w *walk) settings() (all string) {
	w.Helper()
	const look = `cd /sys/class/net/eth1
for f in threaded gro_flush_timeout napi_defer_hard_irqs; do if [ -e $f ]; then echo $f $(cat $f); fi; done
find /sys/fs/bpf/stag -type f 2>/dev/null || true
`
	for _, host := range []string{"left", "right"} {
		all += host + "\n" + w.hosts[host].start(w.T, look).end(w.T)
	}
	return all
}

// TestSteps checks that a malformed block is an error.
func TestSteps(t *testing.T) {
	list, err := steps("a\n```sh left waits\nx\ny\n```\n```text\nz\n```\n```sh both\nv\n```\n")
	if err != nil || len(list) != 2 || list[0] != (step{2, "left", "waits", "x\ny\n", "z\n"}) || list[1].where != "both" {
		t.Errorf("%+v, %v", list, err)
	}
	for _, bad := range []string{"```\nx\n```\n", "```sh\nx\n```\n", "```text\nx\n```\n", "```go\n```\n"} {
		if _, err := steps(bad); err == nil {
			t.Errorf("%q is followed", bad)
		}
	}
}
