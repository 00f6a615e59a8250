package library

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRings runs rdma/verbs/check: the library against a transport that is the test itself.
func TestRings(t *testing.T) {
	dir := libraries(t)
	out, err := exec.Command(filepath.Join(dir, "check"), t.TempDir()).Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || !exit.Exited()) {
		t.Fatalf("check: %v\n%s", err, out)
	}
	passed := 0
	for line := range strings.Lines(string(out)) {
		verdict, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		if verdict == "ok" {
			passed++
			continue
		}
		t.Errorf("%s %s", verdict, what)
	}
	if err != nil || passed < 22 {
		t.Errorf("%d tests of rdma/verbs/check have passed, and it ended with %v: want 22 and nil", passed, err)
	}
}
