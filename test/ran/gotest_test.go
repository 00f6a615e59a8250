package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

const sample = `package sample

import "testing"

func TestGood(t *testing.T) { t.Log("quiet") }

func TestSkip(t *testing.T) { t.Skip("SKIPPED, needs root: run as root") }

func TestPart(t *testing.T) {
	t.Run("whole", func(t *testing.T) {})
	t.Run("half", func(t *testing.T) { t.Skip("needs a moon") })
}
`

const wrong = "package sample\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Error(\"wrong\") }\n"

// TestGoTest checks that the output contains that of go test, with a line for each
// skipped test. The exit code must be that of go test.
func TestGoTest(t *testing.T) {
	need.Tool(t, "go")
	t.Chdir(t.TempDir())
	t.Setenv("GOFLAGS", "") // the module of this test has no vendor directory
	write(t, "go.mod", "module sample\n\ngo 1.26\n")
	write(t, "sample_test.go", sample)
	skips := "SKIP sample TestSkip: needs root: run as root\nSKIP sample TestPart/half: needs a moon\n"
	last := "2 tests and cases were skipped: the lines that begin with SKIP say why\n"
	prints(t, 0, skips+"ok  \tsample\tTIME\n"+last)
	prints(t, 0, "quiet", "-v")
	prints(t, 0, `{"Time"`, "-json")
	prints(t, 1, "flag provided but not defined", "-nonsense")
	write(t, "wrong_test.go", wrong)
	prints(t, 1, "--- FAIL: TestBad (TIME)\nFAIL\nFAIL\tsample\tTIME\n")
	write(t, "wrong_test.go", wrong+"}")
	prints(t, 1, "FAIL\tsample [setup failed]\n")
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.FromSlash(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var duration = regexp.MustCompile(`\d+\.\d+s`)

// prints runs go test and checks the exit code and a part of the output.
func prints(t *testing.T, want int, part string, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	got := goTest(append(args, "-count=1", "./..."), &out, &errs)
	text := duration.ReplaceAllString(out.String()+errs.String(), "TIME")
	if got != want || !strings.Contains(text, part) {
		t.Errorf("go test %q: exit code %d, want %d with %q in\n%s", args, got, want, part, text)
	}
	if len(args) == 0 && (strings.Contains(text, "quiet") || strings.Contains(text, "PASS")) {
		t.Errorf("without -v a test that passed says\n%s", text)
	}
}
