//go:build interop

package interop

import (
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
)

// TestLIOISER logs in to LIO over iSER, with each way of proving who the ends are, and
// writes and reads pieces of several lengths: short ones are in the PDU of the command, LIO
// reads longer ones by RDMA.
func TestLIOISER(t *testing.T) {
	for n, p := range proofs() {
		c := carriers[n%len(carriers)]
		row(t, p.name+", "+c.name, about{"LIO isert", "512 to 1048576"}, func(r *rig) {
			l := r.lioISER(p.settings...)
			d := r.dial(c, p.url(l, "?"), iscsi.Config{})
			l.says("RDMAExtensions=Yes")
			l.proves(p)
			for _, size := range []int{512, 4096, 8192, 8704, 65536, 1 << 20} {
				l.roundTrip(d, random(size))
			}
			r.Must(d.Close())
			if log := r.inGuest("dmesg"); strings.Contains(log, "QP fatal error") {
				r.Errorf("the connection ends before LIO is done with it:\n%s", log)
			}
		})
	}
}

// TestLIOISERBulk writes the whole disk over iSER with many commands in flight, and reads
// it. LIO's file must have the octets.
func TestLIOISERBulk(t *testing.T) {
	for n, c := range carriers {
		if brief && n == 0 {
			continue
		}
		again, says := eachWay()
		row(t, "file, "+c.name, about{"LIO isert", says}, func(r *rig) {
			l := r.lioISER()
			w := newLoad(r, r.dial(c, l.url("", lioFileLUN, ""), iscsi.Config{}), bulk/parts)
			r.Must(w.run(again))
			w.there(l)
		})
	}
}
