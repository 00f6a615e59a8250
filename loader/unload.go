package loader

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/undo"
)

// UnloadOptions says what to unload.
type UnloadOptions struct {
	// Instance is the directory in which the programs of the instance are pinned.
	Instance string
	// Port is the directory of one interface of the instance. "" means all interfaces.
	Port string
	// Force also unloads what is in use. The connections that were taken over are then
	// lost. Their process notices that within a second, and resets the peers.
	Force bool
}

// Unloaded describes what Unload did to an interface.
type Unloaded struct {
	Port     PinnedPort // state before the unload
	Lost     int        // number of flows that running processes lost: see Port.Users
	Left     int        // number of flows of processes that have died
	Settings []Change   // the restored settings
}

// Unload detaches the programs of an instance, or of one of its interfaces. It finds an
// interface that was renamed or moved. Unload also removes the pins, and restores the
// settings that Load has tuned. If a check before the first change fails, Unload
// unloads no interface. If a later step fails for one interface, Unload continues with
// the others. done lists the interfaces whose programs are detached.
//
// Errors: ErrQueueBusy while a process uses an interface or has flows there, unless
// o.Force is true. The text of ErrQueueBusy says how many flows of which process would
// be lost. ErrLayout if another version made the maps, because the flows cannot be
// counted then. ErrNotPinned if nothing is pinned.
func Unload(o UnloadOptions) (done []Unloaded, err error) {
	if err := isPinned(o.Instance); err != nil {
		return nil, err
	}
	lock, err := lockInstance(o.Instance)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	f := newFinder()
	defer f.close()
	i := readInstance(o.Instance, f)
	ports := i.of(o.Port)
	if o.Port != "" && len(ports) == 0 {
		return nil, fail(ErrNotPinned, nil, "nothing is pinned at %s", o.Port)
	}
	var claims undo.Stack
	defer claims.Run()
	var refusals []error
	for n := range ports {
		refusals = append(refusals, ports[n].hold(&claims), ports[n].refusal(i.Err))
	}
	if o.Port == "" && !i.Table.usedBy(ports) { // if the process of the table also uses a port, the port's refusal already names that process
		refusals = append(refusals, i.Table.refusal())
	}
	if err := errors.Join(refusals...); err != nil && !o.Force {
		return nil, err
	}
	done, err = unloadAll(ports, f, len(i.Ports))
	if o.Port == "" && err == nil {
		err = os.RemoveAll(o.Instance)
	}
	leaveRoot()
	return done, err
}

// unloadAll unloads interfaces of an instance that has n interfaces. If unloadAll fails
// for one interface, it continues with the others. unloadAll removes pins last, because
// only then is it known whether an interface stays loaded and uses the flow maps.
func unloadAll(ports []PinnedPort, f *finder, n int) (done []Unloaded, err error) {
	for _, p := range ports {
		u, failed := p.unload(f)
		if failed == nil {
			done = append(done, u)
		}
		err = errors.Join(err, failed)
	}
	for _, u := range done {
		err = errors.Join(err, u.Port.forget(len(done) < n))
	}
	return done, err
}

// leaveRoot removes the directory Root if no instance is left.
func leaveRoot() { os.Remove(Root) } // fails while an instance is there

// of returns the interface with the directory dir, or all interfaces if dir is "".
func (i Instance) of(dir string) []PinnedPort {
	if dir == "" {
		return i.Ports
	}
	at := slices.IndexFunc(i.Ports, func(p PinnedPort) bool { return p.Dir == dir })
	if at < 0 {
		return nil
	}
	return i.Ports[at : at+1]
}

// hold claims the program, so that no other process can adopt it during the unload. If
// another process has adopted it already, hold sets p.Owner for refusal.
func (p *PinnedPort) hold(claims *undo.Stack) error {
	if p.Stale != "" {
		return nil
	}
	c, owner, err := claimFile(programClaim(ebpf.ProgramID(p.ProgID)), p.Dir)
	if err != nil {
		return err
	}
	if c == nil {
		p.Owner, p.InUse = owner, true
		return nil
	}
	claims.Add(c.Close)
	if p.InUse || len(p.Flows) == 0 {
		return nil
	}
	// No claim was found. The flows belong to a process that died, or to a process
	// whose claim cannot be seen from here.
	if pid := p.holder(); pid != 0 {
		p.Owner, p.InUse = Owner{PID: pid}, true
	}
	return nil
}

// Users returns how many flows each process would lose if the program were detached, by
// pid. The pid is 0 if the process cannot be identified. Orphaned flows do not count.
// Only one process at a time uses a program. That process has cleared the orphans of
// earlier ones.
func (p *PinnedPort) Users() map[int]int {
	if p.InUse {
		return map[int]int{p.Owner.PID: len(p.Flows)}
	}
	return p.Live()
}

// refusal returns the reason why the interface should not be unloaded now, or nil.
// layout is the reason why its flows cannot be read, or nil.
func (p *PinnedPort) refusal(layout error) error {
	if p.Stale != "" {
		return nil
	}
	n := p.Users()
	var users []string
	for _, pid := range slices.Sorted(maps.Keys(n)) {
		users = append(users, Owner{PID: pid}.String()+flows(n[pid]))
	}
	switch {
	case len(users) > 0:
		return fail(ErrQueueBusy, nil, "%s is in use by %s: end that first; --force takes it away all the same, and resets the connections",
			p.name(), strings.Join(users, " and "))
	case layout != nil:
		return fmt.Errorf("%w; --force unloads %s although its flows cannot be counted", layout, p.name())
	case p.Err != nil:
		return fmt.Errorf("%w; --force unloads %s all the same", p.Err, p.name())
	}
	return nil
}

// usedBy reports whether the process that uses the table also uses one of the ports.
func (t *PinnedTable) usedBy(ports []PinnedPort) bool {
	return t != nil && t.InUse && slices.ContainsFunc(ports, func(p PinnedPort) bool { return p.InUse && p.Owner == t.Owner })
}

// refusal returns the reason why the table should not be removed now, or nil.
func (t *PinnedTable) refusal() error {
	if t == nil || !t.InUse {
		return nil
	}
	return fail(ErrQueueBusy, nil, "the table of registered memory is in use by %s: end that process first; --force removes it from the file system", t.Owner)
}

func flows(n int) string {
	switch n {
	case 0:
		return " without a connection"
	case 1:
		return " with 1 flow"
	}
	return fmt.Sprintf(" with %d flows", n)
}

// name returns the name of the interface for messages.
func (p *PinnedPort) name() string {
	switch {
	case !p.Found:
		return fmt.Sprintf("interface %d of instance %s", p.Index, filepath.Base(filepath.Dir(p.Dir)))
	case p.Space != "":
		return p.Name + " in " + p.Space
	}
	return p.Name
}

// unload restores the settings and detaches the program.
func (p PinnedPort) unload(f *finder) (u Unloaded, err error) {
	u.Port = p
	for _, n := range p.Users() {
		u.Lost += n
	}
	u.Left = len(p.Flows) - u.Lost
	at, known := f.find(p.Index, p.ProgID)
	if u.Settings, err = p.restore(f, at, known); err != nil {
		return u, err
	}
	return u, detach(p.Dir)
}

// forget removes the pins of an interface whose program is detached. If shared is true,
// it also deletes the interface's flows, because other interfaces use the flow maps. It
// removes the pins even if the flows cannot be deleted, because no later call would
// remove the pins.
func (p *PinnedPort) forget(shared bool) (err error) {
	if shared {
		err = p.dropFlows()
	}
	return errors.Join(err, (&pinDir{filepath.Dir(p.Dir), p.Dir}).remove())
}

// restore restores the settings that Load has tuned. The caller must call it before
// detach: a veth has NAPI only while the program is attached.
func (p *PinnedPort) restore(f *finder, at whereabouts, known bool) ([]Change, error) {
	kept, err := readSettings(settingsPath(Link{Netns: p.Netns, PortIndex: p.Index}))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return kept.restore(f, at, known || p.Stale == "")
}

// detach detaches the program that is pinned in dir from its interface, even if another
// process has the program open.
func detach(dir string) error {
	hook, err := link.LoadPinnedLink(filepath.Join(dir, "link"), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", filepath.Join(dir, "link"), err)
	}
	defer hook.Close()
	// With the interface gone, the program is detached already.
	if err := hook.Detach(); err != nil && !errors.Is(err, unix.ENOLINK) {
		return fmt.Errorf("detach the program pinned in %s: %w", dir, err)
	}
	return nil
}
