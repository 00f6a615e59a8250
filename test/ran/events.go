package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// follow collects how the tests end, and prints what go test without -v would
// print, and what skipped tests say.
func follow(r io.Reader, w io.Writer) (run, error) {
	seen := run{}
	said := map[test]*bytes.Buffer{} // by top-level test, until it ends
	err := events(r, func(e event) {
		name, _, _ := strings.Cut(e.Test, "/")
		t := test{dirOf(e.Package), name}
		switch e.Action {
		case "build-output":
			fmt.Fprint(w, e.Output)
		case "output":
			if name == "" {
				fmt.Fprint(w, e.Output)
				break
			}
			if said[t] == nil {
				said[t] = new(bytes.Buffer)
			}
			said[t].WriteString(e.Output)
		case "skip":
			if strings.Contains(e.Test, "/") {
				seen[t] = skipped // one case skipped is the test skipped
			}
			fallthrough
		case "pass", "fail":
			if e.Test == name {
				seen.end(t, outcome(e.Action), said, w)
			}
		}
	}, func(line []byte) { w.Write(line) })
	return seen, err
}

// end notes how a test or package ended, and prints what it said if that
// matters.
func (seen run) end(t test, how outcome, said map[test]*bytes.Buffer, w io.Writer) {
	if how == passed && seen[t] == skipped {
		how = skipped
	}
	seen[t] = how
	if said[t] != nil && how != passed {
		w.Write(said[t].Bytes())
	}
	delete(said, t)
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
