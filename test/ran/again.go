package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/test/ran/reason"
)

// because is why a test, subtest or package has failed.
type because struct {
	test
	how  string // FAILED, UNFINISHED or NOT BUILT
	said string
}

// failed remembers why t has failed. A test with a failed subtest, or a package with a
// failed test, has no other reason, unless it has printed one itself.
func (p *printer) failed(t test) {
	said := text(p.own[t])
	below := slices.ContainsFunc(p.reasons, func(b because) bool {
		return b.dir == t.dir && (t.name == "" || strings.HasPrefix(b.name, t.name+"/"))
	})
	if below && (t.name == "" || len(reason.Of(said)) == 0) {
		return
	}
	p.reasons = append(p.reasons, because{t, "FAILED", said})
}

// unbuilt remembers the first messages of the compiler about a package.
func (p *printer) unbuilt(path string) {
	lines := strings.SplitAfter(text(p.builds[path]), "\n")
	p.reasons = append(p.reasons, because{test{path, ""}, "NOT BUILT", strings.Join(lines[:min(len(lines), mostBuild)], "")})
}

// mostBuild limits the compiler's messages that again prints, in lines.
const mostBuild = 6

// again prints why tests have failed, with the last lines of what each has printed. They
// also stand far above, where a log that is cut may not have them.
func (p *printer) again() {
	for _, b := range p.reasons {
		fmt.Fprintf(p.w, "%s %s: %s\n", b.how, strings.TrimSpace(b.test.String()), reason.Line(b.said))
		for _, line := range reason.Of(b.said) {
			fmt.Fprintln(p.w, line)
		}
	}
}

// text returns what a buffer has, if there is one.
func text(b *bytes.Buffer) string {
	if b == nil {
		return ""
	}
	return b.String()
}
