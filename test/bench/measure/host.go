package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// meter holds the processor time used so far by the machine and by this process.
type meter struct {
	idle, all uint64 // ticks of all cores since boot (/proc/stat)
	own       time.Duration
	napi      []string // schedstat files of the pair's NAPI threads
}

// startMeter begins to measure the cost of a transfer over p.
func startMeter(p *pair.Pair, threaded bool) (m meter, err error) {
	if threaded {
		if m.napi, err = napiThreads(p); err != nil {
			return m, err
		}
	}
	err = m.read()
	return m, err
}

// usage is the processor time used between two moments.
type usage struct {
	busy float64       // number of cores that were not idle, for any reason
	own  time.Duration // processor time of this process, including its system calls and their soft interrupts, and of NAPI threads
}

// since returns the usage since startMeter returned m.
func (m meter) since() (u usage, err error) {
	now := m
	if err := now.read(); err != nil {
		return u, err
	}
	u.own = now.own - m.own
	if ticks := now.all - m.all; ticks != 0 {
		u.busy = (1 - float64(now.idle-m.idle)/float64(ticks)) * float64(runtime.NumCPU())
	}
	return u, nil
}

func (m *meter) read() error {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return err
	}
	m.own = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	for _, file := range m.napi {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		ns, _, _ := strings.Cut(string(text), " ") // fields: time on a core, time waiting, time slices
		n, err := strconv.ParseInt(ns, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		m.own += time.Duration(n)
	}
	return m.readStat()
}

// readStat reads the first line of /proc/stat. Its fields are cpu user nice system idle
// iowait irq softirq steal, then the guests' time, which user and nice already include.
func (m *meter) readStat() error {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	m.idle, m.all = 0, 0
	for i, field := range strings.Fields(line)[1:] {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return fmt.Errorf("/proc/stat: %w", err)
		}
		if i < 8 {
			m.all += n
		}
		if i == 3 || i == 4 {
			m.idle += n
		}
	}
	return nil
}

// napiThreads finds the kernel threads that run NAPI of p's links. The names of these
// links are unique on the machine.
func napiThreads(p *pair.Pair) (files []string, err error) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil {
			continue // the process has just ended
		}
		for side, end := range p.Ends {
			for _, link := range []string{end.Name, p.Seconds[side].Name} {
				if link != "" && strings.HasPrefix(string(comm), "napi/"+link) {
					files = append(files, filepath.Join(filepath.Dir(name), "schedstat"))
				}
			}
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no NAPI threads of %s and %s found", p.Ends[0].Name, p.Ends[1].Name)
	}
	return files, nil
}
