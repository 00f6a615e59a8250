package main

import (
	"fmt"
	"slices"
	"strings"
)

// test is a top-level test: the directory of its package and its name.
type test struct{ dir, name string }

func (t test) String() string { return t.dir + " " + t.name }

// list holds the tests that must run.
type list []test

const listHead = "# Every top-level test by package. To change it: go run ./test/ran -update\n"

// String returns the list as it is committed: sorted, with one test per line.
func (l list) String() string {
	lines := make([]string, len(l))
	for i, t := range l {
		lines[i] = t.String() + "\n"
	}
	slices.Sort(lines)
	return listHead + strings.Join(lines, "")
}

// parseList parses the result of String.
func parseList(content string) (l list, err error) {
	for i, line := range strings.Split(content, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Fields(line)
		if len(f) != 2 {
			return nil, fmt.Errorf("line %d is not a directory and a test's name: %q", i+1, line)
		}
		l = append(l, test{f[0], f[1]})
	}
	return l, nil
}

// within reports whether t lies in one of the directories of a comma-separated list. A
// directory with "/..." also includes those below it. The empty list includes every
// directory.
func (t test) within(dirs string) bool {
	return dirs == "" || slices.ContainsFunc(strings.Split(dirs, ","), func(dir string) bool {
		top, tree := strings.CutSuffix(dir, "/...")
		return t.dir == top || tree && strings.HasPrefix(t.dir, top+"/")
	})
}

// count returns how many tests of the list lie within the directories.
func (l list) count(dirs string) (n int) {
	for _, t := range l {
		if t.within(dirs) {
			n++
		}
	}
	return n
}

// compare returns a line for each fault of a run: each failure and, within the
// directories, each difference from the list.
func compare(l list, seen run, dirs string) (complaints []string) {
	expected := map[test]bool{}
	for _, t := range l {
		expected[t] = true
		switch {
		case seen[t] == passed || !t.within(dirs):
		case seen[t] == "":
			complaints = append(complaints, t.String()+" did not run")
		case seen[t] == skipped:
			complaints = append(complaints, t.String()+" was skipped")
		}
	}
	for t, how := range seen {
		switch {
		case how == failed && t.name == "":
			complaints = append(complaints, "package "+t.dir+" failed")
		case how == failed:
			complaints = append(complaints, t.String()+" failed")
		case t.name != "" && !expected[t] && t.within(dirs):
			complaints = append(complaints, t.String()+" is not in the list: go run ./test/ran -update")
		}
	}
	slices.Sort(complaints)
	return complaints
}
