package pair

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// quiet stops the kernel from sending IPv6 packets of its own on the link called name, so that a test counts only
// packets that the test caused. Files under /proc/sys/net belong to the namespace of the thread that opens them.
func quiet(name string) error {
	for _, setting := range []struct{ file, value string }{
		{"accept_dad", "0"},
		{"dad_transmits", "0"},
		{"router_solicitations", "0"},
		{"accept_ra", "0"},
	} {
		file := filepath.Join("/proc/sys/net/ipv6/conf", name, setting.file)
		err := os.WriteFile(file, []byte(setting.value), 0)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("this kernel has no IPv6: %w", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
