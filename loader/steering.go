package loader

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/undo"
)

// Mode is the place in the receive path where the program runs.
type Mode uint8

const (
	Native  Mode = iota // in the driver, before the kernel builds an sk_buff
	Generic             // behind the driver, on copies: slow, but works with any driver
)

func (m Mode) String() string {
	if m == Generic {
		return "generic"
	}
	return "native"
}

// Steering is the program on an interface, with its maps. It is safe for concurrent
// use.
type Steering struct {
	link     Link
	mode     Mode
	id       ebpf.ProgramID
	instance string // directory; "" for a private program
	tuned    []Change
	hook     link.Link
	shared   // the maps of all interfaces of the adapter
	socks    *ebpf.Map
	stats    *ebpf.Map
	options  *ebpf.Map
	wait     time.Duration // OrphanWait as Load has set it
	claimed  *Claim        // the claim on the hook of a private program, or on a pinned program

	closing sync.Once
	undo    undo.Stack
	closed  error
}

// Link returns the interface that the program is on.
func (s *Steering) Link() Link { return s.link }

// Mode returns the mode in which the program runs.
func (s *Steering) Mode() Mode { return s.mode }

// ProgID returns the program's number in the kernel (`bpftool prog show id N`).
func (s *Steering) ProgID() uint32 { return uint32(s.id) }

// Instance returns the directory of the instance that the program is pinned in. It
// returns "" for a private program.
func (s *Steering) Instance() string { return s.instance }

// Tuned returns the settings that Load has changed, or advises to change, because of
// Options.Tune.
func (s *Steering) Tuned() []Change { return s.tuned }

// MaxFlows returns how many flows of each address family the flow maps have room for. All
// interfaces that share the flow maps share this room.
func (s *Steering) MaxFlows() uint32 { return s.flows4.MaxEntries() }

// Queues returns the number of slots for sockets, one for each queue.
func (s *Steering) Queues() int { return int(s.socks.MaxEntries()) }

// OrphanWait returns how long flows of an engine that has died are kept: see Options.
// The value is known only if Load made the Steering.
func (s *Steering) OrphanWait() time.Duration { return s.wait }

// Attached reports whether the program is still on its interface.
func (s *Steering) Attached() (bool, error) {
	info, err := s.hook.Info()
	if err != nil {
		return false, fmt.Errorf("ask whether the program is on %s: %w", s.link.Port, err)
	}
	xdp := info.XDP()
	return xdp != nil && xdp.Ifindex != 0, nil
}

// flowMap returns the map of the flow's address family, and the flow's key in it.
func (s *Steering) flowMap(k bpf.FlowKey) (m *ebpf.Map, key any) {
	name, key := k.InMap()
	return *s.shared.byName()[name], key
}

// Insert adds a flow to the flow map of its address family. From then on the program directs the flow's
// packets to the sockets. The packets may arrive on any interface that shares the flow
// map. Insert fills in the process, the time and the program of f if they are zero.
//
// Errors: ErrFlowExists if the key is in use. ErrFlowsFull if the map has no room.
func (s *Steering) Insert(key bpf.FlowKey, f bpf.Flow) error {
	f, err := s.stamp(f)
	if err != nil {
		return err
	}
	m, in := s.flowMap(key)
	err = m.Update(in, f, ebpf.UpdateNoExist)
	switch {
	case errors.Is(err, ebpf.ErrKeyExist):
		return fail(ErrFlowExists, err, "flow %v on %s is entered already: wait until its last use has ended", key, s.link.Name)
	case errors.Is(err, unix.E2BIG):
		return fail(ErrFlowsFull, err, "%s has room for %d flows of an address family, and all are in use: load stag with more", s.link.Name, s.MaxFlows())
	case err != nil:
		return fmt.Errorf("enter flow %v on %s: %w", key, s.link.Name, err)
	}
	return nil
}

// stamp fills in the process, the time and the program of an entry if they are zero.
func (s *Steering) stamp(f bpf.Flow) (bpf.Flow, error) {
	if f.Program == 0 {
		f.Program = uint32(s.id)
	}
	if f.PID == 0 {
		f.PID = uint32(os.Getpid())
	}
	if f.Created == 0 {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return f, fmt.Errorf("read the clock: %w", err)
		}
		f.Created = uint64(now.Nano())
	}
	return f, nil
}

// Update replaces the whole entry of a flow. The error is ErrNoFlow if there is no
// entry.
func (s *Steering) Update(key bpf.FlowKey, f bpf.Flow) error {
	f, err := s.stamp(f)
	if err != nil {
		return err
	}
	m, in := s.flowMap(key)
	return s.outcome("change", key, m.Update(in, f, ebpf.UpdateExist))
}

// Delete deletes the entry of a flow. The kernel gets the flow's packets again. The
// error is ErrNoFlow if there is no entry.
func (s *Steering) Delete(key bpf.FlowKey) error {
	m, in := s.flowMap(key)
	return s.outcome("remove", key, m.Delete(in))
}

// Lookup reads the entry of a flow. The error is ErrNoFlow if there is no entry.
func (s *Steering) Lookup(key bpf.FlowKey) (f bpf.Flow, err error) {
	m, in := s.flowMap(key)
	return f, s.outcome("look up", key, m.Lookup(in, &f))
}

func (s *Steering) outcome(what string, key bpf.FlowKey, err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return fail(ErrNoFlow, err, "flow %v is not on %s", key, s.link.Name)
	}
	if err != nil {
		return fmt.Errorf("%s flow %v on %s: %w", what, key, s.link.Name, err)
	}
	return nil
}

// Flows calls f for each flow of this interface until f returns false. Flows may miss a
// flow that is inserted or deleted during the call. Rarely, it calls f twice for one
// flow.
func (s *Steering) Flows(f func(bpf.FlowKey, bpf.Flow) bool) error {
	return s.allFlows(func(k bpf.FlowKey, flow bpf.Flow) bool {
		return flow.Program != uint32(s.id) || f(k, flow)
	})
}

// allFlows does the same as Flows for all interfaces that share the flow maps.
func (s *Steering) allFlows(f func(bpf.FlowKey, bpf.Flow) bool) error {
	more, err := flowsIn[bpf.Key4](s, s.flows4, f)
	if err != nil || !more {
		return err
	}
	_, err = flowsIn[bpf.Key6](s, s.flows6, f)
	return err
}

// flowsIn calls f for each flow of a flow map with keys of type K. It returns false if f
// did.
func flowsIn[K interface{ FlowKey() bpf.FlowKey }](s *Steering, m *ebpf.Map, f func(bpf.FlowKey, bpf.Flow) bool) (more bool, err error) {
	var key K
	var flow bpf.Flow
	it := m.Iterate()
	for it.Next(&key, &flow) {
		if !f(key.FlowKey(), flow) {
			return false, nil
		}
	}
	// Many deletions during the walk make it start again. The kernel limits the
	// restarts.
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return false, fmt.Errorf("list the flows of %s: %w", s.link.Name, err)
	}
	return true, nil
}

// Clear deletes every orphaned flow of the flow maps and returns their number. The
// caller must have adopted the program, must have sockets of its own for every queue,
// and must have no flows yet. own holds the caller's lanes.
//
// Because the caller has no flows yet, each flow of this interface is an orphan, and
// each flow of a lane of own is an orphan. Any other flow is an orphan if its process
// is not found here and its lane has no socket. The process alone does not decide,
// because the pid of a process in a container means nothing here.
func (s *Steering) Clear(own ...*Lanes) (n int, err error) {
	slots, err := newLaneProbe(s.lanes)
	if err != nil {
		return 0, err
	}
	defer slots.close()
	mine := func(slot uint16) bool {
		return slices.ContainsFunc(own, func(l *Lanes) bool { return l.has(slot) })
	}
	n, err = s.remove(func(f bpf.Flow) bool {
		return f.Program == uint32(s.id) || mine(f.Owner) || !made(f) && !slots.lives(f.Owner)
	})
	return n, errors.Join(err, slots.err)
}

// ClearOf deletes the flows of the interfaces that have these programs.
func (s *Steering) ClearOf(programs ...uint32) error {
	_, err := s.remove(func(f bpf.Flow) bool { return slices.Contains(programs, f.Program) })
	return err
}

// remove deletes each flow for which the function which returns true. It returns the
// number of deleted flows.
func (s *Steering) remove(which func(bpf.Flow) bool) (n int, err error) {
	var keys []bpf.FlowKey
	err = s.allFlows(func(k bpf.FlowKey, f bpf.Flow) bool {
		if which(f) {
			keys = append(keys, k)
		}
		return true
	})
	var why error // the first error
	left := 0
	for _, k := range keys {
		switch failed := s.Delete(k); {
		case failed == nil:
			n++
		case !errors.Is(failed, ErrNoFlow):
			left++
			why = cmp.Or(why, failed)
		}
	}
	if left != 0 {
		err = errors.Join(err, fmt.Errorf("flows left in the map: %d: %w", left, why))
	}
	return n, err
}

// SetSocket makes the AF_XDP socket fd receive the packets of a queue. The socket must
// be bound to that queue of the port. The kernel empties the slot when the socket is
// closed.
func (s *Steering) SetSocket(queue int, fd int) error {
	if queue < 0 || queue >= s.Queues() {
		return fmt.Errorf("%s has no queue %d: the program was loaded for %d", s.link.Port, queue, s.Queues())
	}
	if err := s.socks.Put(uint32(queue), uint32(fd)); err != nil {
		return fmt.Errorf("give the packets of %s queue %d to a socket: %w", s.link.Port, queue, err)
	}
	return nil
}

// ClearSocket empties the slot of a queue. From then on the program drops packets of
// flows that arrive on the queue. Other packets go to the kernel. ClearSocket accepts a
// slot that is empty already.
func (s *Steering) ClearSocket(queue int) error {
	err := s.socks.Delete(uint32(queue))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("empty the slot of %s queue %d: %w", s.link.Port, queue, err)
	}
	return nil
}

// Stats counts packets by the program's reason for its verdict, since the program was
// loaded.
type Stats [bpf.Reasons]uint64

// Stats reads the counters and returns the sum over all processors.
func (s *Steering) Stats() (sum Stats, err error) {
	var per []uint64
	for why := range sum {
		if err := s.stats.Lookup(uint32(why), &per); err != nil {
			return sum, fmt.Errorf("read the counters of %s: %w", s.link.Port, err)
		}
		for _, n := range per {
			sum[why] += n
		}
	}
	return sum, nil
}

// Close ends the use of the program. A private program is detached, and its maps are
// freed. A pinned program stays on the interface and keeps steering. Further calls
// return the result of the first.
func (s *Steering) Close() error {
	s.closing.Do(func() { s.closed = s.undo.Run() })
	return s.closed
}

// Longest returns the length of the longest frame that reaches a socket in one piece,
// as Link.Longest does. If the MTU allows longer frames, the caller must announce an
// MSS that keeps segments shorter.
func (s *Steering) Longest(chunk int) int { return s.link.Longest(s.mode == Generic, chunk) }

// maps returns the interface's own maps by name. For all maps see allMaps.
func (s *Steering) maps() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{bpf.MapSocks: &s.socks, bpf.MapStats: &s.stats, bpf.MapOptions: &s.options}
}
