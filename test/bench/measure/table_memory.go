package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// These are the figures of memory, in KiB for each end of a connection.
const (
	ResidentKiB Figure = "resident_kib_per_end"
	SlabKiB     Figure = "slab_kib_per_end"
	OpenedPerS  Figure = "connected_per_s" // connections per second; both ends of each are taken over
)

// crowdAtOnce is how many connections are made at the same time.
const crowdAtOnce = 256

// memoryTable shows the cost of idle connections. Both ends of each connection are in
// this process, so n QPs are n/2 connections.
func memoryTable(Options) *Table {
	t := &Table{
		Name:  "memory",
		Title: "Memory for each end of an idle connection: growth from before they were made",
		About: `QPs of depth 16, one CQ for all, both ends of every connection in this process: the
growth is divided by the number of ends. resident: of this process, garbage collected
before and after. slab: of the kernel, of the whole machine. Two rows have posted
receives, without buffers: 128 to each QP, or 16384 to an SRQ for all QPs of a side.`,
		Columns: []Column{{ResidentKiB, "resident", 2, false}, {SlabKiB, "slab", 2, false}, {OpenedPerS, "made/s", 0, false}},
	}
	const ends = 10000
	for r, name := range memoryRows {
		t.Rows = append(t.Rows, &Row{
			Case: Case{Name: fmt.Sprintf("%d idle QPs%s", ends, name), MTU: 1500, Connections: ends / 2},
			run:  func(ctx context.Context) (Values, error) { return measureMemory(ctx, ends/2, receives(r)) },
		})
	}
	return t
}

// memoryRows are the ends of the names of the table's rows, by the receives of the QPs.
var memoryRows = [...]string{noReceives: "", ownReceives: ", receives posted", sharedReceives: " with one SRQ"}

// warmCrowd is how many connections exist before memory is first measured. The first
// connections allocate memory that all connections share.
const warmCrowd = 64

func measureMemory(ctx context.Context, connections int, r receives) (v Values, err error) {
	c, err := newCrowd(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.grow(ctx, warmCrowd, warmCrowd); err != nil {
		return nil, err
	}
	before, err := readMemory()
	if err != nil {
		return nil, err
	}
	ends, begin := c.ends(), time.Now()
	if err := c.grow(ctx, connections, crowdAtOnce); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	after, err := readMemory()
	if err := errors.Join(err, c.broken()); err != nil {
		return nil, err
	}
	ends = c.ends() - ends
	return Values{
		ResidentKiB: float64(after.resident-before.resident) / float64(ends),
		SlabKiB:     float64(after.slab-before.slab) / float64(ends),
		OpenedPerS:  float64(connections) / took.Seconds(),
	}, nil
}

// memory is the memory in use, in KiB.
type memory struct{ resident, slab int }

// readMemory collects the garbage, returns free memory to the kernel, and then reads
// the memory in use.
func readMemory() (m memory, err error) {
	debug.FreeOSMemory()
	m.resident, err = kibibytes("/proc/self/status", "VmRSS:")
	if err != nil {
		return m, err
	}
	m.slab, err = kibibytes("/proc/meminfo", "Slab:")
	return m, err
}

// kibibytes reads the line that begins with name from a file of /proc.
func kibibytes(file, name string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == name {
			return strconv.Atoi(f[1])
		}
	}
	return 0, fmt.Errorf("%s has no line %s", file, name)
}

// threadsOf returns the number of threads of a process.
func threadsOf(pid int) (int, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return len(tasks), err
}

// memoryGoals limits the memory of an idle connection.
func memoryGoals(r *Report) (list []Goal) {
	t := r.table("memory")
	if t == nil {
		return nil
	}
	var own, shared float64
	for _, row := range t.Rows {
		v, ok := row.Median[ResidentKiB]
		switch {
		case !ok:
			continue
		case strings.HasSuffix(row.Name, memoryRows[ownReceives]):
			own = v
			continue
		case strings.HasSuffix(row.Name, memoryRows[sharedReceives]):
			shared = v
		}
		list = append(list, Goal{What: fmt.Sprintf("KiB resident for each of %s", row.Name), Want: 8, Most: true, Have: v})
	}
	if own != 0 && shared != 0 {
		list = append(list, Goal{What: "memory of idle QPs with one SRQ, of that with receives posted to each", Want: 0.5, Most: true, Have: shared / own})
	}
	return list
}
