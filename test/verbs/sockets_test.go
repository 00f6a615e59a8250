//go:build verbs

package verbs

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const rcopyPort, rstreamPort = 7427, 7471

// TestSockets: programs that use the rsockets of librdmacm.
func TestSockets(t *testing.T) {
	from, to := filepath.Join(theStage.tmp(), "from"), filepath.Join(theStage.tmp(), "to")
	octets := make([]byte, 5<<20+3)
	random := rand.NewChaCha8([32]byte{1})
	random.Read(octets)
	if err := os.WriteFile(from, octets, 0o644); err != nil {
		t.Fatal(err)
	}
	play(t, row{
		title: "rcopy", server: "rcopy", client: "rcopy " + from + " " + addrA + ":" + to, port: rcopyPort, stays: true, kernel: true,
		check: func(t *trial, _, _ string) {
			got, err := os.ReadFile(to)
			if err != nil || !bytes.Equal(got, octets) {
				t.Errorf("%d octets arrived, not the %d that were sent (%v)", len(got), len(octets), err)
			}
			t.must(os.Remove(to))
		},
	})
	for _, program := range []string{"rstream -T v -S all -I 20", "rstream -T v -T a -I 20", "rstream -T v -T n -I 20", "rstream -T f -I 20",
		"riostream -T v -S all -I 20", "riostream -T v -T a -I 20"} {
		play(t, row{server: program, client: program + " -s " + addrA, port: rstreamPort, kernel: true, more: !strings.Contains(program, "-S all"), check: says("Gb/sec")})
	}
}
