package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// event is one line of go test -json (go doc test2json).
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64 // of a result: in seconds
}

// outcome is the result of a test.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

// run holds the result of each top-level test. The result of a package has an empty
// test name.
type run map[test]outcome

// dirOf returns the directory of a package below the module's root.
func dirOf(pkg string) string {
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}

// events calls fn for each event on r. It calls other for each line that is no event,
// such as the output of commands that run before go test.
func events(r io.Reader, fn func(event), other func(line []byte)) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case line[0] == '{' && json.Unmarshal(line, &e) == nil && e.Action != "":
			fn(e)
		default:
			other(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// printer prints the output of go test, and a line for each skipped test.
type printer struct {
	w       io.Writer
	verbose bool // print the output of every test, as go test -v does
	seen    run
	took    map[test]float64         // seconds that each top-level test has taken
	said    map[test]*bytes.Buffer   // output of each top-level test until the test ends
	own     map[test]*bytes.Buffer   // output of each test, subtest or package without that of its subtests or tests
	builds  map[string]*bytes.Buffer // messages of the compiler by import path
	reasons []because                // for again
	skips   int
}

// follow collects the results of the tests on r and prints their output.
func (p *printer) follow(r io.Reader) error {
	p.seen, p.took, p.said, p.own = run{}, map[test]float64{}, map[test]*bytes.Buffer{}, map[test]*bytes.Buffer{}
	p.builds = map[string]*bytes.Buffer{}
	return events(r, p.event, func(line []byte) { p.w.Write(line) })
}

func (p *printer) event(e event) {
	name, _, _ := strings.Cut(e.Test, "/")
	top, t := test{dirOf(e.Package), name}, test{dirOf(e.Package), e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(p.w, e.Output)
		add(p.builds, e.ImportPath, e.Output)
	case "build-fail":
		p.unbuilt(e.ImportPath)
	case "output":
		p.output(top, t, e.Output)
	case "skip":
		if e.Test != "" {
			p.skip(top, t)
		}
		fallthrough
	case "pass", "fail":
		if t == top {
			p.took[t] = e.Elapsed
			p.end(t, outcome(e.Action))
		}
		if e.Action == "fail" {
			p.failed(t)
		}
		delete(p.own, t)
	}
}

// output prints or keeps the text of t. t is the top-level test top or a subtest of
// top.
func (p *printer) output(top, t test, text string) {
	switch {
	case top.name == "" && text == "PASS\n" && !p.verbose:
	case top.name == "" || p.verbose:
		fmt.Fprint(p.w, text)
	default:
		add(p.said, top, text)
	}
	add(p.own, t, text)
}

// add adds text to one of the buffers of a map.
func add[K comparable](to map[K]*bytes.Buffer, key K, text string) {
	if to[key] == nil {
		to[key] = new(bytes.Buffer)
	}
	to[key].WriteString(text)
}

// place matches the file and line in front of a line that a test has printed.
var place = regexp.MustCompile(`^\S+\.go:\d+: (SKIPPED, )?`)

// skip prints on one line that t is skipped, and why. A test with a skipped subtest
// counts as skipped.
func (p *printer) skip(top, t test) {
	p.seen[top] = skipped
	p.skips++
	var lines []string
	for line := range strings.Lines(text(p.own[t])) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			lines = append(lines, place.ReplaceAllString(line, ""))
		}
	}
	why := strings.Join(lines, "; ")
	if why == "" {
		why = "it does not say why"
	}
	fmt.Fprintf(p.w, "SKIP %v: %s\n", t, why)
}

// end records the result of a test or package, and prints the output of a failed one.
func (p *printer) end(t test, how outcome) {
	if how == passed && p.seen[t] == skipped {
		how = skipped
	}
	p.seen[t] = how
	if t.name == "" && how == failed {
		p.unfinished(t.dir)
	}
	if p.said[t] != nil && how == failed {
		p.w.Write(p.said[t].Bytes())
	}
	delete(p.said, t)
}

// unfinished prints the output of the tests of a package that have begun and not ended:
// those that ran when the time was up, or when the process ended.
func (p *printer) unfinished(dir string) {
	for t, said := range p.said {
		if t.dir == dir {
			fmt.Fprintf(p.w, "UNFINISHED %v:\n%s", t, said.Bytes())
			p.reasons = append(p.reasons, because{t, "UNFINISHED", said.String()})
			delete(p.said, t)
		}
	}
}

// listed reads the output of go test -list -json. It writes the compiler's messages to
// w.
func listed(r io.Reader, w io.Writer) (l list, err error) {
	err = events(r, func(e event) {
		if e.Action == "build-output" {
			fmt.Fprint(w, e.Output)
		}
		name := strings.TrimSpace(e.Output)
		for _, kind := range []string{"Test", "Fuzz", "Example"} {
			if e.Action == "output" && strings.HasPrefix(name, kind) && !strings.ContainsAny(name, " \t") {
				l = append(l, test{dirOf(e.Package), name})
			}
		}
	}, func([]byte) {})
	return l, err
}
