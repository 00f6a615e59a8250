package wire_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/wire"
)

// Prefetch of octets at the end of a mapping, and of an empty slice, does no harm.
func TestPrefetch(t *testing.T) {
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	wire.Prefetch(nil)
	wire.Prefetch(mem[4096:])
	for n := range len(mem) {
		wire.Prefetch(mem[n:])
		wire.Prefetch(mem[:n])
	}
}
