package loader

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/stag-rdma/stag/bpf"
)

// Options says what to load, and where.
type Options struct {
	// Link is the name of the interface. It must exist in the network namespace of the
	// calling OS thread. For a VLAN interface, the program goes to the parent.
	Link string

	// Generic selects generic mode, which runs the program behind the driver. Without
	// Generic the mode is native, and the error is ErrNoNative if the driver has no
	// native XDP.
	//
	// In generic mode receive offload must be off (ErrOffload). The segmentation
	// offloads at a veth's other end must also be off. Load cannot check the other end.
	// The command for it is ethtool -K PEER tso off gso off.
	Generic bool

	// Pin is the instance's directory in a BPF file system. A pinned program stays when
	// the process ends. "" makes the program private. A private program ends with the
	// Steering or with the process.
	Pin string

	// Tune changes settings of the interface, and of a veth's other end. Unload
	// restores them. Tune needs Pin.
	Tune Tune

	// OrphanWait is how long the program keeps the packets of a dead engine from the
	// kernel. The time counts for each flow from the first packet that finds the engine
	// dead. After OrphanWait the kernel gets the packets and resets the peer. 0 means
	// DefaultOrphanWait. NoOrphanWait means no wait. A living engine keeps its flows
	// even if it makes no progress.
	OrphanWait time.Duration

	// With is the program of another interface of the same adapter. A private program
	// shares the flow maps of With. A pinned program ignores With, and shares the flow
	// maps of its instance.
	With *Steering

	// MaxFlows is the number of flows of each address family that the flow maps have room
	// for. All interfaces that share the flow maps share this room. 0 means the size of
	// the existing flow maps, or 65536 if there are none. The largest value is 1048576.
	MaxFlows uint32
	Queues   int // number of slots for sockets; 0 means the number of the port's receive queues
}

// These are special values of Options.OrphanWait.
const (
	DefaultOrphanWait = 2 * time.Second
	NoOrphanWait      = time.Duration(-1)
)

// These are the limits of Options.MaxFlows. A flow id has 20 bits of index.
const (
	defaultFlows = 1 << 16
	maxFlows     = 1 << bpf.FlowIndexBits
)

func (o Options) fill(l Link) (Options, error) {
	var errs []error
	if o.MaxFlows > maxFlows {
		errs = append(errs, fmt.Errorf("room for %d flows: want at most %d", o.MaxFlows, maxFlows))
	}
	if o.Queues == 0 {
		o.Queues = l.RxQueues
	}
	if o.OrphanWait == 0 {
		o.OrphanWait = DefaultOrphanWait
	}
	if o.Queues < l.RxQueues {
		errs = append(errs, fmt.Errorf("%d queues: %s receives with %d, and packets of a queue without a slot would be lost",
			o.Queues, l.Port, l.RxQueues))
	}
	if o.With != nil && o.Pin != "" {
		errs = append(errs, errors.New("a pinned program shares the flows of its instance, not those of another interface"))
	}
	if o.Tune != TuneNothing && o.Pin == "" {
		errs = append(errs, errors.New("tune an interface for a program that goes with the process: pin it"))
	}
	if !slices.Contains(Tunes, o.Tune) {
		errs = append(errs, fmt.Errorf("tune for %q: choose %s, %s or %s", o.Tune, TuneBasics, TuneLatency, TuneThroughput))
	}
	return o, errors.Join(errs...)
}

// hookClaim names the claim on a hook. A process holds it for as long as it has a
// private program, and while it loads a pinned program.
const hookClaim = "program"

// Load puts the steering program on an interface. It needs CAP_BPF and CAP_NET_ADMIN.
// The caller must close the Steering.
func Load(o Options) (*Steering, error) {
	n, err := Open()
	if err != nil {
		return nil, err
	}
	defer n.Close()
	l, err := n.LookupLink(o.Link)
	if err != nil {
		return nil, err
	}
	if o, err = o.fill(l); err != nil {
		return nil, err
	}
	s := &Steering{link: l}
	if err := s.load(n, o); err != nil {
		s.undo.Run()
		return nil, err
	}
	return s, nil
}

func (s *Steering) load(n *Net, o Options) error {
	claim, owner, err := claim(s.link, hookClaim)
	if err != nil {
		return err
	}
	if claim == nil {
		return fail(ErrAlreadyLoaded, nil, "stag is on %s already, loaded by %s: end that process first", s.link.Port, owner)
	}
	s.undo.Add(claim.Close)
	s.claimed = claim
	if o.Pin == "" {
		return s.put(n, o, o.With.shares())
	}
	if err := s.stay(n, o); err != nil {
		return err
	}
	// From here on the pins keep the program, so the process can end.
	return claim.Close()
}

// put creates the program and attaches it.
func (s *Steering) put(n *Net, o Options, with shared) error {
	if err := n.hookFree(s.link); err != nil {
		return err
	}
	if err := n.CheckOffloads(s.link, o.Generic); err != nil {
		return err
	}
	prog, err := s.create(o, with)
	if err != nil {
		return s.explainCreate(err)
	}
	defer prog.Close() // the link keeps the program
	s.wait = max(0, o.OrphanWait)
	if err := setOrphanWait(s.options, s.wait); err != nil {
		return err
	}
	return s.attach(n, prog, o)
}

// create creates the program and its maps from the object. It reuses the maps of with.
func (s *Steering) create(o Options, with shared) (*ebpf.Program, error) {
	spec, err := bpf.Spec()
	if err != nil {
		return nil, err
	}
	// These two maps belong to the adapter. NewTable makes them once for all
	// interfaces.
	delete(spec.Maps, bpf.MapTable)
	delete(spec.Maps, bpf.MapPages)
	room, err := with.room(o.MaxFlows)
	if err != nil {
		return nil, err
	}
	spec.Maps[bpf.MapFlows4].MaxEntries, spec.Maps[bpf.MapFlows6].MaxEntries = room, room
	spec.Maps[bpf.MapSocks].MaxEntries = uint32(o.Queues)
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: with.replacements()})
	if err != nil {
		return nil, err
	}
	config := coll.DetachMap(bpf.MapConfig)
	defer config.Close() // a pinned instance gets its config map from pinConfig
	for name, m := range s.allMaps() {
		*m = coll.DetachMap(name)
		s.undo.Add((*m).Close)
	}
	return coll.DetachProgram(bpf.Program), nil
}

// setOrphanWait writes OrphanWait into the program's map of options.
func setOrphanWait(m *ebpf.Map, wait time.Duration) error {
	if err := m.Put(uint32(0), bpf.Options{OrphanWait: uint64(max(0, wait))}); err != nil {
		return fmt.Errorf("tell the steering program how long to keep an engine's flows that has died: %w", err)
	}
	return nil
}

func (s *Steering) attach(n *Net, prog *ebpf.Program, o Options) error {
	flags := link.XDPDriverMode
	if o.Generic {
		s.mode, flags = Generic, link.XDPGenericMode
	}
	hook, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: s.link.PortIndex, Flags: flags})
	if err != nil {
		return n.ExplainAttach(s.link, err)
	}
	s.hook = hook
	s.undo.Add(hook.Close)
	if err := n.checkChannels(s.link); err != nil {
		return err
	}
	info, err := prog.Info()
	if err != nil {
		return fmt.Errorf("ask for the number of the steering program: %w", err)
	}
	s.id, _ = info.ID()
	return nil
}

// TryProgram makes the kernel verify the steering program and create its maps. Then it
// discards the program and the maps. The error is ErrPermission or the kernel's reason.
func TryProgram() error {
	s := &Steering{}
	defer s.undo.Run()
	prog, err := s.create(Options{MaxFlows: 1, Queues: 1}, shared{})
	if err == nil {
		return prog.Close()
	}
	if refused := s.explainCreate(err); errors.Is(refused, ErrPermission) {
		return refused
	}
	return err
}
