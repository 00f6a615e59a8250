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

// event is a line of go test -json (go doc test2json).
type event struct {
	Action, Package, Test, Output, ImportPath string
}

// outcome is how a test ended.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

// run is how each top-level test ended, and under an empty name its package.
type run map[test]outcome

// dirOf is a package's directory from the module's root.
func dirOf(pkg string) string {
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}

// events calls fn for each event on r, and other for each line that is none,
// as from commands that run before go test.
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

// printer prints what go test prints, and a line for each test that is skipped.
type printer struct {
	w       io.Writer
	verbose bool // print what every test says, as go test -v
	seen    run
	said    map[test]*bytes.Buffer // by top-level test, until it ends
	why     map[test][]string      // what a test, or a case of one, has said by itself
	skips   int
}

// follow collects how the tests end, and prints as p does.
func (p *printer) follow(r io.Reader) error {
	p.seen, p.said, p.why = run{}, map[test]*bytes.Buffer{}, map[test][]string{}
	return events(r, p.event, func(line []byte) { p.w.Write(line) })
}

func (p *printer) event(e event) {
	name, _, _ := strings.Cut(e.Test, "/")
	top, t := test{dirOf(e.Package), name}, test{dirOf(e.Package), e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(p.w, e.Output)
	case "output":
		p.output(top, t, e.Output)
	case "skip":
		if e.Test != "" {
			p.skip(top, t)
		}
		fallthrough
	case "pass", "fail":
		delete(p.why, t)
		if t == top {
			p.end(t, outcome(e.Action))
		}
	}
}

// output prints or keeps what t says, which is top or a case of it.
func (p *printer) output(top, t test, text string) {
	switch {
	case top.name == "" && text == "PASS\n" && !p.verbose:
	case top.name == "" || p.verbose:
		fmt.Fprint(p.w, text)
	default:
		if p.said[top] == nil {
			p.said[top] = new(bytes.Buffer)
		}
		p.said[top].WriteString(text)
	}
	if line := strings.TrimSpace(text); t.name != "" && line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
		p.why[t] = append(p.why[t], place.ReplaceAllString(line, ""))
	}
}

// place is where in a file a test has said something.
var place = regexp.MustCompile(`^\S+\.go:\d+: (SKIPPED, )?`)

// skip prints that t is skipped, and why, in one line. One case that is skipped
// makes the test one that is skipped.
func (p *printer) skip(top, t test) {
	p.seen[top] = skipped
	p.skips++
	why := strings.Join(p.why[t], "; ")
	if why == "" {
		why = "it does not say why"
	}
	fmt.Fprintf(p.w, "SKIP %v: %s\n", t, why)
}

// end notes how a test or package ended, and prints what a failed one has said.
func (p *printer) end(t test, how outcome) {
	if how == passed && p.seen[t] == skipped {
		how = skipped
	}
	p.seen[t] = how
	if p.said[t] != nil && how == failed {
		p.w.Write(p.said[t].Bytes())
	}
	delete(p.said, t)
}

// listed reads what go test -list -json writes. What the compiler complains
// about goes to w.
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
