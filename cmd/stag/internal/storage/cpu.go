package storage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is how much of the processors was busy, in percent: 100 is one processor.
type CPU struct {
	Process float64 `json:"process_percent"`
	Machine float64 `json:"machine_percent"` // this process, all others, and the kernel
}

// usage is processor time since some moment.
type usage struct{ process, machine time.Duration }

// tick is the unit of /proc/stat. Linux shows the same unit to all programs.
const tick = 10 * time.Millisecond

// readCPU reads how long the processors have been busy.
func readCPU() (u usage, err error) {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return u, fmt.Errorf("processor time: %w", err)
	}
	u.process = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, fmt.Errorf("processor time: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	u.machine, err = busy(line)
	return u, err
}

// The columns of the first line of /proc/stat (proc_stat(5)).
const (
	idleColumn   = 4
	iowaitColumn = 5
	stealColumn  = 8 // the columns behind are parts of others
)

// busy returns the busy time in the first line of /proc/stat.
func busy(line string) (total time.Duration, err error) {
	words := strings.Fields(line)
	if len(words) <= stealColumn || words[0] != "cpu" {
		return 0, fmt.Errorf("processor time: /proc/stat begins with %q", line)
	}
	for i, word := range words[:stealColumn+1] {
		if i == 0 || i == idleColumn || i == iowaitColumn {
			continue
		}
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time: /proc/stat: %w", err)
		}
		total += time.Duration(n) * tick
	}
	return total, nil
}

// since returns the load since an earlier moment, took before.
func (u usage) since(before usage, took time.Duration) CPU {
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / max(took.Seconds(), 1e-9) }
	return CPU{percent(u.process - before.process), percent(u.machine - before.machine)}
}
