package main

import (
	"fmt"
	"slices"
	"strings"
)

// test is a top-level test: its package's directory and its name.
type test struct{ dir, name string }

func (t test) String() string { return t.dir + " " + t.name }

// list is the tests that must run.
type list []test

const listHead = "# Every top-level test by package. To change it: go run ./test/ran -update\n"

// String is the list as it is committed: sorted, one test a line.
func (l list) String() string {
	lines := make([]string, len(l))
	for i, t := range l {
		lines[i] = t.String() + "\n"
	}
	slices.Sort(lines)
	return listHead + strings.Join(lines, "")
}

// parseList reads what String writes.
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

// within reports whether t lies in one of the directories of a comma list; one
// that ends in "/..." stands for all below too. The empty list is every
// directory.
func (t test) within(dirs string) bool {
	return dirs == "" || slices.ContainsFunc(strings.Split(dirs, ","), func(dir string) bool {
		top, tree := strings.CutSuffix(dir, "/...")
		return t.dir == top || tree && strings.HasPrefix(t.dir, top+"/")
	})
}

// count is how many tests of the list lie within the directories.
func (l list) count(dirs string) (n int) {
	for _, t := range l {
		if t.within(dirs) {
			n++
		}
	}
	return n
}

// compare says, one line each, what is wrong with a run: what failed, and
// within the directories in what it differs from the list.
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
