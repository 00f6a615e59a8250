package loader

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// SetTxChecksum turns the transmit checksum offload of the interface called name on or
// off, as `ethtool -K NAME tx on|off` does. SetTxChecksum looks the interface up in the
// network namespace of the calling OS thread. A veth end whose offload is on sends
// segments that carry only the checksum of the pseudo-header.
func SetTxChecksum(name string, on bool) error {
	return switchOffload(name, "transmit checksum offload", unix.ETHTOOL_STXCSUM, on)
}

// SetGRO turns generic receive offload of the interface called name on or off, as
// `ethtool -K NAME gro on|off` does. SetGRO looks the interface up as SetTxChecksum
// does. On a veth end, GRO also makes NAPI run without an XDP program.
func SetGRO(name string, on bool) error {
	return switchOffload(name, "generic receive offload", unix.ETHTOOL_SGRO, on)
}

// SetTxVLAN turns the insertion of VLAN tags by the interface called name on or off, as
// `ethtool -K NAME txvlan on|off` does. SetTxVLAN looks the interface up as
// SetTxChecksum does. A veth end whose insertion is on passes the tag outside the
// packet data. An XDP program at the other end then does not see the tag.
func SetTxVLAN(name string, on bool) error {
	e, err := openEthtool()
	if err != nil {
		return err
	}
	defer e.close()
	flags, err := e.value(name, unix.ETHTOOL_GFLAGS, 0)
	if err == nil {
		flags &^= ethFlagTxVLAN
		if on {
			flags |= ethFlagTxVLAN
		}
		_, err = e.value(name, unix.ETHTOOL_SFLAGS, flags)
	}
	if err != nil {
		return fmt.Errorf("set VLAN tag insertion of %s: %w", name, err)
	}
	return nil
}

func switchOffload(name, what string, cmd uint32, on bool) error {
	e, err := openEthtool()
	if err != nil {
		return err
	}
	defer e.close()
	var in uint32
	if on {
		in = 1
	}
	if _, err := e.value(name, cmd, in); err != nil {
		return fmt.Errorf("set %s of %s: %w", what, name, err)
	}
	return nil
}

// TxChecksum reports whether the transmit checksum offload of the interface called name
// is on. TxChecksum looks the interface up as SetTxChecksum does.
func TxChecksum(name string) (bool, error) {
	e, err := openEthtool()
	if err != nil {
		return false, err
	}
	defer e.close()
	v, err := e.value(name, ethtoolGTxCsum, 0)
	if err != nil {
		return false, fmt.Errorf("read transmit checksum offload of %s: %w", name, err)
	}
	return v != 0, nil
}

// SetChannels sets the number of receive and of transmit queues that the interface
// called name runs, as `ethtool -L NAME rx N tx N` does. SetChannels is for drivers
// that count receive and transmit queues separately. It looks the interface up as
// SetTxChecksum does.
func SetChannels(name string, rx, tx int) error {
	e, err := openEthtool()
	if err != nil {
		return err
	}
	defer e.close()
	if err := e.setChannels(name, uint32(rx), uint32(tx)); err != nil {
		return fmt.Errorf("run %s with %d receive and %d transmit queues: %w", name, rx, tx, err)
	}
	return nil
}
