package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
)

// Root is the directory in which each instance has a directory of its own name.
const Root = "/sys/fs/bpf/stag"

// Instance holds the pinned objects of one name: the programs of one or more
// interfaces, and the table of the adapter that uses the programs.
type Instance struct {
	Name  string
	Dir   string
	Err   error        // ErrLayout or ErrNotPinned if the rest cannot be read, else nil
	Ports []PinnedPort // sorted by directory
	Table *PinnedTable // nil while no adapter has pinned a table
}

// PinnedPort is a snapshot of a pinned program on an interface.
type PinnedPort struct {
	Dir   string
	Netns uint64 // cookie of the network namespace at the time of the load
	Index int    // interface index at the time of the load

	// Found says that the place of the interface is known. The interface may have been
	// renamed or moved since the load. Found is false if the interface is gone (see
	// Stale). It is also false if the interface is in a network namespace that has
	// neither a name nor a process, or that this process may not enter.
	Found bool
	Name  string
	Space string // name of the network namespace; "" for that of the calling thread
	Mode  Mode

	ProgID   uint32
	MaxFlows uint32 // number of flows of each address family that the flow maps have room for; all interfaces of the instance share this room
	Queues   int
	// OrphanWait is how long the program keeps the flows of an engine that has died:
	// see Options.
	OrphanWait time.Duration
	Flows      []PinnedFlow
	Stats      Stats

	// Owner is the process that uses the program. The zero Owner means no process or,
	// if InUse is true, a process that cannot be identified. Owner does not show a
	// process in a container with a runtime directory of its own. Unload finds that
	// process.
	Owner Owner
	InUse bool

	Stale string // the reason why no process can use the program any more, else ""
	Err   error  // the reason why the rest could not be read, else nil
}

// PinnedFlow is an entry of a pinned flow map.
type PinnedFlow struct {
	Key bpf.FlowKey
	bpf.Flow
	Alive bool // the process that made the entry still runs
}

// PinnedTable is a pinned translation and protection table.
type PinnedTable struct {
	Entries uint32 // number of entries, including the entry that is never used
	Owner   Owner  // the process that writes to the table; the zero Owner if there is none or it is unknown
	InUse   bool   // a process writes to the table

	path string
}

// Instances reads all pinned objects, sorted by name. It takes no lock. It needs the
// rights of root (ErrPermission). ErrNoBPFFS means that this mount namespace shows no
// pins. Another mount namespace may show some.
func Instances() ([]Instance, error) {
	if err := CheckBPFFS(Root); err != nil {
		return nil, err
	}
	dirs, err := os.ReadDir(Root)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case errors.Is(err, os.ErrPermission):
		return nil, cannotRead(err)
	case err != nil:
		return nil, fmt.Errorf("read what is pinned: %w", err)
	}
	finder := newFinder()
	defer finder.close()
	var all []Instance
	for _, d := range dirs {
		if d.IsDir() {
			all = append(all, readInstance(filepath.Join(Root, d.Name()), finder))
		}
	}
	return all, nil
}

// ReadInstance reads the objects that are pinned in dir, as Instances does. It returns
// ErrNotPinned if dir does not exist.
func ReadInstance(dir string) (Instance, error) {
	if err := isPinned(dir); err != nil {
		return Instance{}, err
	}
	finder := newFinder()
	defer finder.close()
	return readInstance(dir, finder), nil
}

// isPinned checks that dir exists.
func isPinned(dir string) error {
	_, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fail(ErrNotPinned, err, "nothing is pinned at %s", dir)
	case errors.Is(err, os.ErrPermission):
		return cannotRead(err)
	}
	return err
}

func cannotRead(err error) error {
	return fail(ErrPermission, err, "what is pinned below %s is root's to read and to change: run as root", Root)
}

func readInstance(dir string, f *finder) Instance {
	i := Instance{Name: filepath.Base(dir), Dir: dir}
	i.Err = (&pinDir{instance: dir}).checkLayout()
	entries, err := os.ReadDir(dir)
	if err != nil {
		i.Err = errors.Join(i.Err, err)
		return i
	}
	for _, e := range entries {
		l, ok := parsePort(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		p := PinnedPort{Dir: filepath.Join(dir, e.Name()), Netns: l.Netns, Index: l.PortIndex}
		p.read(f, i.Err == nil)
		i.Ports = append(i.Ports, p)
	}
	if i.Err == nil {
		i.Table, i.Err = readTable(&pinDir{instance: dir})
	}
	return i
}

// read fills in all that can be read. It reads the maps only if known, that is, if they
// have the layouts of this build.
func (p *PinnedPort) read(f *finder, known bool) {
	p.findOwner(p.Netns, p.Index)
	l, err := link.LoadPinnedLink(filepath.Join(p.Dir, "link"), nil)
	if errors.Is(err, os.ErrNotExist) {
		p.unfinished()
		return
	}
	if err != nil {
		p.Err = fmt.Errorf("open %s: %w", filepath.Join(p.Dir, "link"), err)
		return
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil || info.XDP() == nil {
		p.Err = fmt.Errorf("what is pinned at %s is not a program on an interface", filepath.Join(p.Dir, "link"))
		return
	}
	p.ProgID = uint32(info.Program)
	p.claimedProgram()
	if info.XDP().Ifindex == 0 {
		p.Stale = "its interface is gone, or its program was detached"
	} else {
		p.find(f, int(info.XDP().Ifindex))
	}
	if known {
		p.Err = p.readMaps()
	}
}

// unfinished handles a directory without a link. Such a directory belongs to a load
// that is running or was killed.
func (p *PinnedPort) unfinished() {
	if owner, found := claimant(claimPath(Link{Netns: p.Netns, PortIndex: p.Index}, hookClaim)); found {
		p.Owner, p.InUse = owner, true
		return
	}
	p.Stale = "its load, or its unload, was interrupted"
}

// find looks for the interface in all network namespaces. A moved interface keeps its
// index.
func (p *PinnedPort) find(f *finder, index int) {
	at, ok := f.find(index, p.ProgID)
	if !ok {
		return
	}
	p.Found, p.Name, p.Space, p.Mode = true, at.name, at.space, at.mode
	p.findOwner(at.cookie, index)
}

// findOwner looks for the process that has claimed a queue of the interface.
func (p *PinnedPort) findOwner(cookie uint64, index int) {
	if p.InUse {
		return
	}
	_, p.Owner, p.InUse = owners(Link{Netns: cookie, PortIndex: index})
}

// claimedProgram looks for the process that has adopted the program.
func (p *PinnedPort) claimedProgram() {
	if !p.InUse {
		p.Owner, p.InUse = claimant(programClaim(ebpf.ProgramID(p.ProgID)))
	}
}

func (p *PinnedPort) readMaps() error {
	s := &Steering{link: Link{Name: p.Name, Port: p.Name}, id: ebpf.ProgramID(p.ProgID)}
	defer s.undo.Run()
	at := &pinDir{filepath.Dir(p.Dir), p.Dir}
	for name, m := range s.allMaps() {
		path := at.pathOf(name)
		var err error
		if *m, err = ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true}); err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		s.undo.Add((*m).Close)
	}
	p.MaxFlows, p.Queues = s.MaxFlows(), s.Queues()
	var told bpf.Options
	if err := s.options.Lookup(uint32(0), &told); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(p.Dir, bpf.MapOptions), err)
	}
	p.OrphanWait = time.Duration(told.OrphanWait)
	err := s.Flows(func(k bpf.FlowKey, f bpf.Flow) bool {
		p.Flows = append(p.Flows, PinnedFlow{k, f, made(f)})
		return true
	})
	if err != nil {
		return err
	}
	p.Stats, err = s.Stats()
	return err
}

// Live counts the flows of running processes, by pid. All other flows belong to
// processes that have died.
func (p *PinnedPort) Live() map[int]int {
	live := map[int]int{}
	for _, f := range p.Flows {
		if f.Alive {
			live[int(f.PID)]++
		}
	}
	return live
}

// made reports whether the process that made the entry still runs. A new process may
// have the same pid. made therefore also checks that the process started before the
// entry was made.
func made(f bpf.Flow) bool {
	start, err := startTime(int(f.PID))
	if err != nil {
		return false
	}
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return true // without the clocks made can only check that a process has the pid
	}
	const tick = 10_000_000 // nanoseconds of a clock tick in proc(5): USER_HZ is 100
	created := int64(f.Created) + boot.Nano() - mono.Nano()
	return int64(start)*tick <= created
}

// readTable finds the pinned table. It returns nil if there is none.
func readTable(p *pinDir) (*PinnedTable, error) {
	path := p.inInstance(bpf.MapTable)
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer m.Close()
	if err := p.suits(bpf.MapTable, m); err != nil {
		return nil, err
	}
	t := &PinnedTable{Entries: m.MaxEntries(), path: path}
	if claim, err := tableClaim(m); err == nil {
		t.Owner, t.InUse = claimant(claim)
	}
	return t, nil
}

// Read maps the table read-only and calls f with its memory, for tpt.NewView. It
// returns f's error. The memory is valid until f returns.
func (t *PinnedTable) Read(f func(memory []byte) error) error {
	// The kernel refuses a shared mapping of a read-only descriptor.
	m, err := ebpf.LoadPinnedMap(t.path, nil)
	if err != nil {
		return fmt.Errorf("open %s: %w", t.path, err)
	}
	defer m.Close()
	if err := (&pinDir{instance: filepath.Dir(t.path)}).suits(bpf.MapTable, m); err != nil {
		return err
	}
	memory, err := mapArray(m, unix.PROT_READ)
	if err != nil {
		return err
	}
	return errors.Join(f(memory), unix.Munmap(memory))
}
