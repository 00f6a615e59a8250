package dump

import (
	"os"
	"os/exec"
	"testing"
)

// inChild runs a test in a process of its own, because the test changes settings of its process.
func inChild(t *testing.T, name string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+name+"$", "-test.v")
	cmd.Env = append(os.Environ(), "STAG_TEST_LIMIT=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
