package iscsi_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

var update = flag.Bool("update", false, "write testdata/iscsi-test-cu.txt")

// conformanceList has the results of iscsi-test-cu 1.19, a line for each test.
const conformanceList = "testdata/iscsi-test-cu.txt"

// TestConformance runs iscsi-test-cu against a target over the kernel's TCP. No test of
// the family ALL may fail, and every test that the list says is passed must pass. The
// tests of SANITIZE run once more with -S, which permits them. One of them fails, because
// a sanitize operation of this target is complete when its command is, also with IMMED.
func TestConformance(t *testing.T) {
	need.Tool(t, "iscsi-test-cu")
	s := serveOn(t, ram(t, 128<<20), func(c *iscsi.ServerConfig) {
		l := c.Targets[0].LUNs[1]
		l.Removable = true
		l.Reservations = filepath.Join(t.TempDir(), "reservations")
		c.Targets[0].LUNs[1] = l
	})
	run := func(args ...string) []byte {
		out, err := exec.CommandContext(rig.On(t).Ctx(), "iscsi-test-cu", append(args, url(s, "", ""))...).CombinedOutput()
		if err != nil {
			t.Logf("iscsi-test-cu: %v", err)
		}
		return out
	}
	out := run("-d", "-v", "-t", "ALL")
	got := conformance(out)
	passed := 0
	for _, line := range got {
		switch name, result, _ := strings.Cut(line, " "); result {
		case "failed", "unknown":
			t.Errorf("%s:\n%s", line, section(out, name))
		case "passed":
			passed++
		}
	}
	t.Logf("%d tests, %d passed", len(got), passed)
	for _, line := range conformance(run("-d", "-v", "-S", "-t", "ALL.Sanitize")) {
		got = append(got, "-S:"+line)
	}
	if *update {
		rig.Check(t, os.WriteFile(conformanceList, []byte(strings.Join(got, "\n")+"\n"), 0o600))
		return
	}
	list, err := os.ReadFile(conformanceList)
	if err != nil {
		t.Fatal(err)
	}
	for want := range strings.Lines(string(list)) {
		want = strings.TrimSpace(want)
		if strings.HasSuffix(want, " passed") && !slices.Contains(got, want) {
			t.Errorf("%s: not any more", want)
		}
	}
}

var (
	suiteLine = regexp.MustCompile(`^\s*Suite: (\S+)`)
	testLine  = regexp.MustCompile(`^\s*Test: (\S+) \.\.\.(.*)`)
)

// conformance reads the output of iscsi-test-cu. CUnit says of a test that was skipped
// that it was passed. What a test logs may stand behind the word of the test before it.
func conformance(out []byte) (list []string) {
	suite, name, result := "", "", ""
	end := func() {
		if name != "" {
			list = append(list, name+" "+result)
		}
		name, result = "", "unknown"
	}
	for line := range strings.Lines(string(out)) {
		if m := suiteLine.FindStringSubmatch(line); m != nil {
			end()
			suite = m[1]
			continue
		}
		if strings.Contains(line, "Run Summary") {
			break
		}
		if m := testLine.FindStringSubmatch(line); m != nil {
			end()
			name, line = suite+"."+m[1], m[2]
		}
		switch line = strings.TrimSpace(line); {
		case strings.HasSuffix(line, "FAILED"):
			result = "failed"
		case strings.Contains(line, "[SKIPPED]") && result != "failed":
			result = "skipped"
		case strings.HasPrefix(line, "passed") && result == "unknown", strings.HasSuffix(line, "passed") && result == "unknown":
			result = "passed"
		}
	}
	end()
	return list
}

// section is the part of the output about a test.
func section(out []byte, name string) []byte {
	suite, test, _ := strings.Cut(name, ".")
	_, out, _ = bytes.Cut(out, []byte("Suite: "+suite))
	_, out, _ = bytes.Cut(out, []byte("Test: "+test+" "))
	out, _, _ = bytes.Cut(out, []byte("Test: "))
	return out
}

// The reader of the output must see failures.
func TestConformanceOutput(t *testing.T) {
	got := conformance([]byte(`
Suite: A
  Test: One ...passed
  Test: Two ...    [SKIPPED] x is not implemented.
passed
  Test: Three ...    [FAILED] wrong
FAILED
    1. a.c:1  - CU_ASSERT
  Test: Four ...    passed    [FAILED] of the set-up of the next test
Suite: B
  Test: Five ...FAILED
Run Summary:    Type
`))
	if want := []string{"A.One passed", "A.Two skipped", "A.Three failed", "A.Four passed", "B.Five failed"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
