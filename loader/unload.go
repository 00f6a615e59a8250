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

// UnloadOptions say what to take away.
type UnloadOptions struct {
	// Instance is its directory.
	Instance string
	// Port is the directory of one of its interfaces. "": all of them.
	Port string
	// Force unloads also what is in use. Connections that were taken over are then lost:
	// their process notices it within a second, and resets their peers.
	Force bool
}

// Unloaded is what Unload did to an interface.
type Unloaded struct {
	Port     PinnedPort // as it was before
	Lost     int        // flows of processes that run still: Port.Users
	Left     int        // flows of processes that had died
	Settings []Change   // that were put back
}

// Unload detaches the programs of an instance, or of one interface of it, wherever the
// interfaces are now, removes the pins, and puts back the settings that Load has tuned. It
// unloads all of them or, with an error, none.
//
// Errors: ErrQueueBusy while a process uses an interface or has flows there, unless forced;
// the text says how many flows of which process would be lost. ErrLayout if another version
// made the maps, so that the flows cannot be counted. ErrNotPinned if nothing is there.
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
	if o.Port == "" && !i.Table.usedBy(ports) { // that is said of the port
		refusals = append(refusals, i.Table.refusal())
	}
	if err := errors.Join(refusals...); err != nil && !o.Force {
		return nil, err
	}
	for _, p := range ports {
		u, err := p.unload(f)
		if err != nil {
			return done, err
		}
		done = append(done, u)
	}
	if o.Port == "" {
		err = os.RemoveAll(o.Instance)
	}
	leaveRoot()
	return done, err
}

// leaveRoot removes the directory of all instances when none is left.
func leaveRoot() { os.Remove(Root) } // fails while there is one

// of is the interface that has that directory, or all for "".
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

// hold keeps other processes from adopting the program while it is unloaded. If a process
// has already adopted it, refusal reports that.
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
	// They are left over from a process that died, or it cannot be seen as usual.
	if pid := p.holder(); pid != 0 {
		p.Owner, p.InUse = Owner{PID: pid}, true
	}
	return nil
}

// Users counts the flows that processes would lose if the program were detached, by pid. 0
// stands for a process that cannot be told. All other flows are left over. One process at a
// time uses a program, and it has cleared what was left before.
func (p *PinnedPort) Users() map[int]int {
	if p.InUse {
		return map[int]int{p.Owner.PID: len(p.Flows)}
	}
	return p.Live()
}

// refusal is why the interface should not be unloaded now, nil if it may be.
// layout is why its flows cannot be read.
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

// usedBy reports whether the table's user has one of the ports, too.
func (t *PinnedTable) usedBy(ports []PinnedPort) bool {
	return t != nil && t.InUse && slices.ContainsFunc(ports, func(p PinnedPort) bool { return p.InUse && p.Owner == t.Owner })
}

// refusal is why the table should not be removed now.
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

// name is how a message calls the interface.
func (p *PinnedPort) name() string {
	switch {
	case !p.Found:
		return fmt.Sprintf("interface %d of instance %s", p.Index, filepath.Base(filepath.Dir(p.Dir)))
	case p.Space != "":
		return p.Name + " in " + p.Space
	}
	return p.Name
}

// unload detaches and removes.
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
	if err := detach(p.Dir); err != nil {
		return u, err
	}
	if err := p.dropFlows(); err != nil {
		return u, err
	}
	return u, (&pinDir{filepath.Dir(p.Dir), p.Dir}).remove()
}

// restore puts the settings back that Load has tuned. Before detaching: a veth
// has NAPI as long as the program is there.
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

// detach takes the program that is pinned in dir off its interface, also when
// another process has it open.
func detach(dir string) error {
	hook, err := link.LoadPinnedLink(filepath.Join(dir, "link"), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", filepath.Join(dir, "link"), err)
	}
	defer hook.Close()
	// The interface may be gone, and the program with it.
	if err := hook.Detach(); err != nil && !errors.Is(err, unix.ENOLINK) {
		return fmt.Errorf("detach the program pinned in %s: %w", dir, err)
	}
	return nil
}
