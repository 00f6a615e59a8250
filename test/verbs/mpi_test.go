//go:build verbs

package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// agent is the program that mpirun calls in place of ssh. Its arguments are a host, which is
// always the other side, and a command. A shell in the other namespace runs the command.
const agent = `#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
shift
printf '%s\n' "$*" >"$STAG_TEST_FIFO"
`

// shell runs each line that it reads. It opens the fifo for writing too, so that it never sees an end
// and never closes the fifo: a line that is written at that moment would be lost.
const shell = `while read -r line; do sh -c "$line" </dev/null & done <>"$STAG_TEST_FIFO"`

// mpiRuns is how often the program runs: no octet may differ in any run.
const mpiRuns = 20

// runsOver returns how many of runs there are over a carrier, in the size of the tests.
func runsOver(where string, runs int) int {
	if brief || where == "kernel" {
		return min(runs, 2)
	}
	return runs
}

// compile compiles the MPI program.
func compile(t *testing.T, compiler string) string {
	t.Helper()
	program := filepath.Join(theStage.dir, "octets-"+compiler)
	if out, err := exec.Command(compiler, "-O2", "-o", program, "testdata/octets.c").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	return program
}

// noneDiffers checks what octets.c prints.
func noneDiffers(t *trial, said string) {
	if !strings.Contains(said, "2 ranks, 0 octets differ") {
		t.Errorf("the ranks do not say that no octet differs")
	}
}

// mpi runs a command line of mpirun on side B, several times over XDP and less often over the
// kernel's TCP, and checks what it prints. The other ranks run on side A. The fifo leads to the
// shell there.
func mpi(t *testing.T, name, line string, env []string, runs int, check func(t *trial, said string)) {
	script, fifo := filepath.Join(theStage.dir, "agent"), filepath.Join(theStage.tmp(), "fifo")
	if err := os.WriteFile(script, []byte(agent), 0o755); err != nil {
		t.Fatal(err)
	}
	os.Remove(fifo)
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(fifo, user, user); err != nil {
		t.Fatal(err)
	}
	env = append(env, "STAG_TEST_FIFO="+fifo)
	for _, where := range []string{"xdp", "kernel"} {
		t.Run(where, func(t *testing.T) {
			judge(t, where, name, "two ranks", func(t *trial) {
				far, err := t.program(pair.A, []string{"sh", "-c", shell}, env...)
				t.must(err)
				t.Cleanup(far.kill)
				for range runsOver(where, runs) {
					t.ranks(line, env, check)
					if t.Failed() {
						t.Logf("the other side: %s", tail(far.out.String()))
						return
					}
				}
			})
		})
	}
}

// ranks runs the program once.
func (t *trial) ranks(line string, env []string, check func(t *trial, said string)) {
	p := t.begin(pair.B, line, env)
	if err := t.within(p, limit()); err != nil {
		t.Errorf("%v", err)
	}
	check(t, p.out.String())
	if t.Failed() {
		t.Logf("%s\n%s", line, tail(p.out.String()))
	}
}

// openMPI returns a command line of Open MPI over libfabric's verbs;ofi_rxm. more is more options.
func openMPI(program, more string) string {
	return "mpirun.openmpi --prefix /usr -np 2 --host " + addrB + ":1," + addrA + ":1 --mca plm_rsh_agent " + theStage.dir + "/agent" +
		" --mca oob_tcp_if_include 192.0.2.0/24 --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm'" +
		" -x LD_LIBRARY_PATH -x FI_PROVIDER " + more + program
}

var openMPIEnv = []string{"FI_PROVIDER=verbs;ofi_rxm"}

// TestOpenMPI: Open MPI over libfabric's verbs;ofi_rxm.
func TestOpenMPI(t *testing.T) {
	program := compile(t, "mpicc.openmpi")
	mpi(t, "Open MPI over verbs;ofi_rxm", openMPI(program, ""), openMPIEnv, mpiRuns, noneDiffers)
}

// NetPIPE prints one of these for each size of messages: the first with -i, the second without.
var (
	netpipePassed = regexp.MustCompile(`-->\s+Integrity check passed`)
	netpipeFigure = regexp.MustCompile(`-->\s+[0-9.]+ Mbps in\s+[0-9.]+ usec`)
)

// TestNetPIPE: NetPIPE sends messages of many sizes up to 1 MiB to and fro over Open MPI. With -i it
// compares every octet and ends with an error if one differs. Without -i it measures.
func TestNetPIPE(t *testing.T) {
	for _, n := range []struct {
		name, options string
		line          *regexp.Regexp
		sizes         int // NetPIPE tries at least as many
	}{
		{"NetPIPE -i over Open MPI", " -i -n 10", netpipePassed, 36},
		{"NetPIPE over Open MPI", " -n " + pick(10, 500), netpipeFigure, 80},
	} {
		if brief && n.line == netpipeFigure {
			continue
		}
		line := openMPI("NPopenmpi -o /dev/null -l 1 -u 1048576"+n.options, "")
		mpi(t, n.name, line, openMPIEnv, 1, func(t *trial, said string) {
			if sizes := len(n.line.FindAllString(said, -1)); sizes < n.sizes {
				t.Errorf("%d sizes are good, want %d or more", sizes, n.sizes)
			}
		})
	}
}

// TestMPICH: Debian's MPICH uses UCX, with rc_verbs for data and TCP to find the peer.
func TestMPICH(t *testing.T) {
	withNode(t)
	program := compile(t, "mpicc.mpich")
	mpi(t, "MPICH over UCX rc_verbs", "mpirun.mpich -n 2 -hosts "+addrB+","+addrA+" -launcher ssh -launcher-exec "+theStage.dir+"/agent -disable-hostname-propagation "+
		program, append([]string{"UCX_TLS=rc_verbs,tcp,self", "UCX_NET_DEVICES=all"}, roce...), mpiRuns, noneDiffers)
}
