//go:build verbs

package verbs

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// crowd is how many pairs of programs run at once.
const crowd = 32

// TestManyPrograms: 32 programs of each side use one daemon at the same time.
func TestManyPrograms(t *testing.T) {
	const port = 7200
	for _, where := range []string{"xdp", "kernel"} {
		t.Run(where, func(t *testing.T) {
			judge(t, where, fmt.Sprint(crowd, " rping at once"), "rping", func(t *trial) {
				var servers, clients []*process
				line := func(which string, i int) string {
					return fmt.Sprintf("rping %s -V -a %s -p %d -C %s -S 20000", which, addrA, port+i, pick(20, 1000))
				}
				for i := range crowd {
					servers = append(servers, t.begin(pair.A, line("-s", i), nil))
				}
				for i, s := range servers {
					t.await(s, port+i)
				}
				for i := range crowd {
					clients = append(clients, t.begin(pair.B, line("-c", i), nil))
				}
				for i, p := range slices.Concat(clients, servers) {
					if err := t.within(p, limit()); err != nil {
						t.Errorf("program %d: %v\n%s", i, err, tail(p.out.String()))
					}
				}
			})
		})
	}
}

// jemalloc returns an environment in which programs have the memory of jemalloc. It gives
// pages back to the kernel as soon as nobody uses them.
func jemalloc(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/libjemalloc.so.2")
	if err != nil || len(found) == 0 {
		t.Fatalf("no libjemalloc.so.2 (package libjemalloc2): %v", err)
	}
	return []string{"LD_PRELOAD=" + found[0], "MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0,retain:false"}
}

// TestAllocators: memory below regions comes from another allocator. In a long run it also moves
// by realloc while it is registered.
func TestAllocators(t *testing.T) {
	env := jemalloc(t)
	rping := "-V -a " + addrA + " -C 50 -S 65000"
	fabric := "fi_pingpong -c -I 50 -p 'verbs;ofi_rxm' -e rdm"
	play(t,
		row{title: "rping with jemalloc", server: "rping -s " + rping, client: "rping -c " + rping, port: rpingPort, env: env, kernel: true},
		row{title: "fi_pingpong with jemalloc", server: fabric, client: fabric + " " + addrA, port: pingpongPort, env: append(rxm, env...), kernel: true},
	)
	if long {
		program := compile(t, "mpicc.openmpi") + " realloc"
		mpi(t, "Open MPI with jemalloc", openMPI(program, "-x LD_PRELOAD -x MALLOC_CONF "), append(openMPIEnv, env...), 2, noneDiffers)
	}
}
