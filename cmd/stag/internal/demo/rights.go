package demo

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// missingRights returns an error that names the missing rights for the offloaded path, or
// nil. Only missing rights make the demonstration use the kernel port: other missing
// things are errors. CAP_SYS_ADMIN, which namespaces need, includes CAP_BPF.
func missingRights() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("capabilities cannot be read (%w)", err)
	}
	for _, c := range []struct {
		bit  int
		name string
	}{
		{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
		{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"},
		{unix.CAP_NET_RAW, "CAP_NET_RAW"},
	} {
		if data[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			return fmt.Errorf("this process lacks %s, run it as root for the offloaded path", c.name)
		}
	}
	return nil
}
