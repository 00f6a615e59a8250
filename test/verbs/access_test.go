//go:build verbs

package verbs

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAccessFlags: what a QP's access flags do not allow is refused, and the memory stays as it is.
// The flags are numbers of libibverbs.
func TestAccessFlags(t *testing.T) {
	program := filepath.Join(theStage.dir, "access")
	if out, err := exec.Command("cc", "-O2", "-o", program, "testdata/access.c", "-lrdmacm", "-libverbs").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const write, read, atomic = 2, 4, 8
	for _, c := range []struct {
		op    string
		flags int
		word  string // of the server afterwards; "": the operation is refused
	}{
		{"write", write | read, "7"}, {"write", read | atomic, ""}, {"read", read, "5"}, {"read", write | atomic, ""},
		{"add", atomic, "7"}, {"add", write | read, ""},
	} {
		play(t, row{
			title:  fmt.Sprintf("%s with access flags %d", c.op, c.flags),
			server: fmt.Sprintf("%s -s %s %d", program, addrA, c.flags), client: fmt.Sprintf("%s -c %s %s", program, addrA, c.op),
			port: 7475, kernel: true,
			check: func(t *trial, server, client string) {
				if c.word == "" {
					if strings.Count(client, "success") == strings.Count(client, "\n") || !strings.Contains(server, "word 5\n") {
						t.Errorf("the operation is not refused")
					}
					return
				}
				if strings.Count(client, "success") != strings.Count(client, "\n") || !strings.Contains(server, "word "+c.word+"\n") {
					t.Errorf("the operation is refused")
				}
			},
		})
	}
}
