package measure

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// counters returns the sum of counters of /proc/net/netstat. The file has a line of names for
// each group, and below it a line of values.
func counters(text, group string, names ...string) (sum uint64, err error) {
	var heads []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != group {
			continue
		}
		if heads == nil {
			heads = f
			continue
		}
		for _, name := range names {
			at := slices.Index(heads, name)
			if at < 0 || at >= len(f) {
				return 0, fmt.Errorf("/proc/net/netstat has no counter %s", name)
			}
			n, err := strconv.ParseUint(f[at], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/net/netstat: %s: %w", name, err)
			}
			sum += n
		}
		return sum, nil
	}
	return 0, fmt.Errorf("/proc/net/netstat has no group %s", group)
}
