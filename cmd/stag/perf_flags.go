package main

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// perftestFlags are options of perftest that have no effect here. check rejects a value
// that stag cannot provide, so that no test runs with other settings than the user gave.
type perftestFlags struct {
	gid, mtu, port, level int
	connection            string
}

func (o *perftestFlags) flags(f *pflag.FlagSet) {
	f.BoolP("rdma_cm", "R", false, "has no effect: the RDMA connection manager always makes the connections")
	f.BoolP("CPU-freq", "F", false, "has no effect: times do not depend on the processor's frequency")
	f.IntVarP(&o.gid, "gid-index", "x", 0, "has no effect: the server's address selects the GID")
	f.IntVarP(&o.mtu, "mtu", "m", 0, "has no effect (256 to 4096): the MTU of the path sets the size of segments")
	f.IntVarP(&o.port, "ib-port", "i", 1, "has no effect (only 1): an interface has one port")
	f.StringVarP(&o.connection, "connection", "c", "RC", "has no effect (only RC): iWARP has no other type")
	f.IntVarP(&o.level, "sl", "S", 0, "has no effect (0 to 15): TCP has no service levels")
}

func (o *perftestFlags) check(given func(name string) bool) error {
	switch {
	case o.gid < 0 || o.gid > 255:
		return fmt.Errorf("-x %d: choose 0 to 255", o.gid)
	case given("mtu") && !slices.Contains([]int{256, 512, 1024, 2048, 4096}, o.mtu):
		return fmt.Errorf("-m %d: choose 256, 512, 1024, 2048 or 4096; the interface's MTU decides", o.mtu)
	case o.port != 1:
		return fmt.Errorf("-i %d: an interface has one port: choose 1, and the interface by -d", o.port)
	case o.connection != "RC":
		return fmt.Errorf("-c %s: iWARP has reliable connections only: choose RC", o.connection)
	case o.level < 0 || o.level > 15:
		return fmt.Errorf("-S %d: choose 0 to 15", o.level)
	}
	return nil
}
