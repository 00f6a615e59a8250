//go:build verbs

package verbs

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const pingpongPort = 47592

// rxm is the environment of programs that use libfabric's provider ofi_rxm. At the end of a
// connection the provider drops completions that it has not read (docs/verbs.md). It looks for
// the end every 10 ms by default, which loses the last message of some runs on a busy machine.
var rxm = []string{"FI_OFI_RXM_CM_PROGRESS_INTERVAL=500000"} // microseconds

// TestLibfabric: fi_pingpong compares every octet with -c.
func TestLibfabric(t *testing.T) {
	for _, provider := range []string{"-p verbs -e msg", "-p 'verbs;ofi_rxm' -e rdm", "-p 'verbs;ofi_rxm' -e rdm -m tagged"} {
		line := "fi_pingpong -c -I " + pick(100, 10000) + " " + provider
		play(t, row{server: line, client: line + " " + addrA, port: pingpongPort, env: rxm, kernel: true,
			check: func(t *trial, _, client string) {
				for _, size := range []string{"64", "256", "1k", "4k", "64k", "1m"} {
					if !strings.Contains("\n"+client, "\n"+size+" ") {
						t.Errorf("no line for size %s", size)
					}
				}
			}})
	}
	play(t, row{client: "fi_info -p verbs", kernel: true, check: says("provider: verbs", "FI_EP_MSG", "stag0")})
}

const ucxPort = 13337

// node is the device file that UCX looks for. stag does not need it, and nobody opens it.
const node = "/dev/infiniband/stag0"

// withNode makes the device file in a file system that only the test sees.
func withNode(t *testing.T) {
	t.Helper()
	_, err := os.Stat("/dev/infiniband")
	if missing := os.IsNotExist(err); missing {
		if err := os.Mkdir("/dev/infiniband", 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove("/dev/infiniband") })
	}
	if err := unix.Mount("tmpfs", "/dev/infiniband", "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount("/dev/infiniband", unix.MNT_DETACH) })
	if err := errors.Join(unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), os.Chmod(node, 0o666)); err != nil {
		t.Fatal(err)
	}
}

// TestUCX: UCX's transport rc_verbs by itself (am_lat, put_bw, get) and below UCP (tag_lat).
func TestUCX(t *testing.T) {
	withNode(t)
	for _, test := range []string{"am_lat", "am_bw", "put_lat", "put_bw", "get -D zcopy -s 4096", "fadd -s 8", "cswap -s 8"} {
		more := test == "am_bw" || test == "put_lat" || strings.HasPrefix(test, "cswap")
		line := "ucx_perftest -t " + test + " -x rc_verbs -d stag0:1 -n " + pick(1000, 100000) + " -w 100"
		play(t, row{server: line, client: line + " " + addrA, port: ucxPort, env: roce, kernel: true, more: more, check: says("Final:")})
	}
	line := "ucx_perftest -t tag_bw -s 65536 -n " + pick(1000, 100000) + " -w 100"
	play(t, row{title: "ucx_perftest tag_bw over UCP", server: line, client: line + " " + addrA, port: ucxPort, env: append([]string{"UCX_TLS=rc_verbs,tcp"}, roce...), kernel: true,
		check: says("Final:")})
}
