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

// Root is the directory below which instances are pinned, each under its name.
const Root = "/sys/fs/bpf/stag"

// Instance is what is pinned under one name: the programs of one or more
// interfaces, and the table of the adapter that uses them.
type Instance struct {
	Name  string
	Dir   string
	Err   error        // why nothing of it can be read (ErrLayout, ErrNotPinned), or nil
	Ports []PinnedPort // by directory
	Table *PinnedTable // nil while no adapter has pinned one
}

// PinnedPort is a program that stays on an interface. As far as it can be read
// it is as it was at one moment.
type PinnedPort struct {
	Dir   string
	Netns uint64 // cookie of the namespace that it was loaded in
	Index int    // of the interface, then

	// Found: the place of the interface is known. It may have been renamed or moved.
	// Found is false if the interface is gone (see Stale), or is in a network namespace
	// that has neither a name nor a process, or that this process may not enter.
	Found bool
	Name  string
	Space string // "" in the namespace of the calling thread; else what it is called
	Mode  Mode

	ProgID   uint32
	MaxFlows uint32 // of all interfaces of the instance together
	Queues   int
	// OrphanWait is how long flows of an engine that has died are kept: see
	// Options.
	OrphanWait time.Duration
	Flows      []PinnedFlow
	Stats      Stats

	// Owner is the process that uses it. The zero Owner means no process or, with
	// InUse, a process that cannot be told. A process in a container with a runtime
	// directory of its own is not seen here; Unload finds it.
	Owner Owner
	InUse bool

	Stale string // why it is of no use any more, "" otherwise
	Err   error  // why the rest could not be read, or nil
}

// PinnedFlow is a flow entry.
type PinnedFlow struct {
	Key bpf.FlowKey
	bpf.Flow
	Alive bool // the process that made it runs still
}

// PinnedTable is a pinned translation and protection table.
type PinnedTable struct {
	Entries uint32 // the one that is never used included
	Owner   Owner  // who writes to it; the zero Owner: nobody, or unknown
	InUse   bool   // somebody does

	path string
}

// Instances reads everything that is pinned, in the order of names. It takes no lock.
// It needs the rights of root (ErrPermission). ErrNoBPFFS means that pins cannot be seen;
// there may be some in another mount namespace.
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

// ReadInstance reads what is pinned in dir, as Instances does. ErrNotPinned when
// there is no such directory.
func ReadInstance(dir string) (Instance, error) {
	if err := isPinned(dir); err != nil {
		return Instance{}, err
	}
	finder := newFinder()
	defer finder.close()
	return readInstance(dir, finder), nil
}

// isPinned looks whether there is a directory of an instance.
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

// read fills in what can be known. The layouts of maps are ours only if known.
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

// unfinished handles a directory without a link, which belongs to a load that is under
// way or that was killed.
func (p *PinnedPort) unfinished() {
	if owner, found := claimant(claimPath(Link{Netns: p.Netns, PortIndex: p.Index}, hookClaim)); found {
		p.Owner, p.InUse = owner, true
		return
	}
	p.Stale = "its load, or its unload, was interrupted"
}

// find looks for the interface, which has that index wherever it is now.
func (p *PinnedPort) find(f *finder, index int) {
	at, ok := f.find(index, p.ProgID)
	if !ok {
		return
	}
	p.Found, p.Name, p.Space, p.Mode = true, at.name, at.space, at.mode
	p.findOwner(at.cookie, index)
}

// findOwner looks for who has claimed a queue of the interface.
func (p *PinnedPort) findOwner(cookie uint64, index int) {
	if p.InUse {
		return
	}
	_, p.Owner, p.InUse = owners(Link{Netns: cookie, PortIndex: index})
}

// claimedProgram looks for who has adopted the program.
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

// Live counts the flows of live processes, by pid. All other flows are left over from
// processes that died.
func (p *PinnedPort) Live() map[int]int {
	live := map[int]int{}
	for _, f := range p.Flows {
		if f.Alive {
			live[int(f.PID)]++
		}
	}
	return live
}

// made reports whether the process that made the entry still runs. A process that got
// the same pid later is not taken for it.
func made(f bpf.Flow) bool {
	start, err := startTime(int(f.PID))
	if err != nil {
		return false
	}
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return true // the pid is all that we have
	}
	const tick = 10_000_000 // nanoseconds; USER_HZ is 100
	created := int64(f.Created) + boot.Nano() - mono.Nano()
	return int64(start)*tick <= created
}

// readTable finds the table, nil if there is none.
func readTable(p *pinDir) (*PinnedTable, error) {
	m, err := ebpf.LoadPinnedMap(p.table(), &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.table(), err)
	}
	defer m.Close()
	if err := p.suits(m); err != nil {
		return nil, err
	}
	t := &PinnedTable{Entries: m.MaxEntries(), path: p.table()}
	if claim, err := tableClaim(m); err == nil {
		t.Owner, t.InUse = claimant(claim)
	}
	return t, nil
}

// Read maps the table, to read only, and lends the memory to f, for
// tpt.NewView. It returns f's error.
func (t *PinnedTable) Read(f func(memory []byte) error) error {
	// A descriptor that can only be read from cannot be mapped shared.
	m, err := ebpf.LoadPinnedMap(t.path, nil)
	if err != nil {
		return fmt.Errorf("open %s: %w", t.path, err)
	}
	defer m.Close()
	if err := (&pinDir{instance: filepath.Dir(t.path)}).suits(m); err != nil {
		return err
	}
	size := int(m.MaxEntries()) * bpf.EntryLen
	memory, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map the table of %d octets: %w", size, err)
	}
	return errors.Join(f(memory), unix.Munmap(memory))
}
