package loader

import (
	"fmt"

	"github.com/stag-rdma/stag/loader/netdev"
)

// TxSums says in which modes of an AF_XDP socket stag leaves the TCP checksums of packets
// to a port. In the other modes stag computes them.
type TxSums struct {
	Copy, ZeroCopy bool
	says           string
}

// String says it in words, as `stag doctor` prints it.
func (s TxSums) String() string { return s.says }

// TxSums says to whom stag leaves the TCP checksums of packets that it sends through l's
// port. It leaves them to nobody if the port's transmit checksum offload is off
// (ethtool -K PORT tx off). In zero copy the driver must report that it completes
// checksums. In copy mode the driver must be known to do so.
func (n *Net) TxSums(l Link) TxSums {
	on, err := n.eth.value(l.Port, ethtoolGTxCsum, 0)
	if err != nil || on == 0 {
		return TxSums{says: "computed by stag: the transmit checksum offload of " + l.Port + " is off"}
	}
	tasks, err := netdev.TasksOf(l.PortIndex)
	return txSums(l, tasks, err)
}

// txSums is TxSums for a port whose transmit checksum offload is on, and for the tasks that
// the kernel reports, or the kernel's error.
func txSums(l Link, tasks netdev.Tasks, err error) TxSums {
	s := TxSums{Copy: l.Facts().Sums, ZeroCopy: err == nil && tasks&netdev.TxChecksum != 0}
	switch {
	case s.Copy && s.ZeroCopy:
		s.says = fmt.Sprintf("left to driver %s", l.Driver)
	case s.Copy:
		s.says = fmt.Sprintf("left to driver %s in copy mode", l.Driver)
	case s.ZeroCopy:
		s.says = fmt.Sprintf("left to driver %s in zero copy, computed by stag in copy mode", l.Driver)
	case err != nil:
		s.says = fmt.Sprintf("computed by stag: this kernel does not tell whether driver %s could (Linux 6.8)", l.Driver)
	default:
		s.says = fmt.Sprintf("computed by stag: driver %s completes none for AF_XDP", l.Driver)
	}
	return s
}
