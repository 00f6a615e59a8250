package upgrade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/stream"
)

// Successor is the new process's side of an upgrade. Its methods are called in the order of
// the fields and methods here: Begin, then Inheritance for each interface, Ready as
// nic.Config.Ready, Commit, and Install. If anything fails, Refuse ends the upgrade, and the
// old process keeps its connections. One goroutine at a time may use a Successor.
type Successor struct {
	// ImportObjects gets the objects of Offer.Objects, with the time at which they were
	// exported. nil: any object is refused.
	ImportObjects func([]portable.Object, clock.Instant) error
	// ImportULP makes the upper layer of a connection from f.Object. moved is
	// nic.Options.Moved.
	ImportULP func(f *Flow) (u stream.ULP, err error)

	// At, if set, is called at each step with the name of the message that comes next.
	At  func(step string)
	Log *slog.Logger // nil: no log

	link  link
	pid   int
	ports map[string]*port
	early []portable.Object
	flows []*Flow
	lone  bool // the old process has died after complete
}

// port is an interface that the old process has.
type port struct {
	doc         portDoc
	inheritance *nic.Inheritance
}

// stepWait is how long the new process waits for the old one while connections are frozen.
// It is longer than Offer.Pause, because the old process decides.
const stepWait = 4 * DefaultPause

// Begin receives the interfaces from the process at the other end of c.
func Begin(ctx context.Context, c *net.UnixConn) (s *Successor, err error) {
	s = &Successor{link: link{conn: c}, ports: map[string]*port{}, Log: slog.New(slog.DiscardHandler)}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err = s.begin(); err != nil {
		s.Refuse(err)
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	return s, nil
}

func (s *Successor) begin() error {
	cred, err := peer(s.link.conn)
	if err != nil {
		return err
	}
	s.pid = int(cred.Pid)
	if err := s.link.until(time.Now().Add(DefaultStart)); err != nil {
		return err
	}
	var h hello
	m, err := s.link.expect(kindHello, &h)
	if err != nil {
		return err
	}
	m.close()
	switch {
	case h.Version != Version:
		return fmt.Errorf("the old process has version %d of the protocol of upgrades, and this stag has %d", h.Version, Version)
	case h.Layout != bpf.Layout():
		return fmt.Errorf("the maps of the old process have layout version %d, and this stag has %d", h.Layout.Version, bpf.Layout().Version)
	}
	for range h.Ports {
		if err := s.receivePort(); err != nil {
			return err
		}
	}
	for range h.Objects {
		m, err := s.link.receive()
		if err != nil {
			return err
		}
		o, _, err := decodeObject(m)
		if err != nil {
			return err
		}
		s.early = append(s.early, o)
	}
	return nil
}

func (s *Successor) receivePort() error {
	p := &port{}
	m, err := s.link.expect(kindPort, &p.doc)
	if err != nil {
		return err
	}
	p.inheritance = &nic.Inheritance{Program: p.doc.Program, Claims: p.doc.Claims, Files: m.files}
	s.ports[p.doc.Name] = p
	return nil
}

func decodeObject(m *message) (o portable.Object, at clock.Instant, err error) {
	defer m.close()
	var doc objectDoc
	if err = m.is(kindObject, &doc); err != nil {
		return o, 0, err
	}
	if at, err = instantOf(doc.Mono); err != nil {
		return o, 0, err
	}
	o = portable.Object{Kind: doc.Kind, Data: m.data, Files: m.files}
	m.files = nil
	return o, at, o.Check()
}

// PID returns the old process.
func (s *Successor) PID() int { return s.pid }

// Ports returns the names of the old process's interfaces.
func (s *Successor) Ports() (names []string) {
	for name := range s.ports {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Early returns the objects of Offer.Early. The caller owns their files.
func (s *Successor) Early() []portable.Object { return s.early }

// Inheritance returns what nic.Config.Inherit needs for an interface. It returns nil if the
// old process does not have the interface.
func (s *Successor) Inheritance(link string) *nic.Inheritance {
	if p := s.ports[link]; p != nil {
		return p.inheritance
	}
	return nil
}

// Ready says that everything but the queues is prepared, and receives all connections.
// It returns when the old process has given the queues up.
func (s *Successor) Ready() error {
	s.at(kindReady)
	if err := s.link.until(time.Now().Add(DefaultStart + stepWait)); err != nil {
		return err
	}
	if err := s.link.send(kindReady, nil, nil); err != nil {
		return err
	}
	if err := s.receiveAll(); err != nil {
		return err
	}
	if err := s.importAll(); err != nil {
		return err
	}
	s.at(kindReleased)
	return s.hear(kindReleased)
}

// receiveAll receives flows and objects until complete.
func (s *Successor) receiveAll() error {
	var objects []portable.Object
	var at clock.Instant
	for {
		s.at(kindFlow)
		m, err := s.link.receive()
		if err != nil {
			return err
		}
		switch m.kind {
		case kindFlow:
			f, err := decodeFlow(m)
			m.close()
			if f != nil {
				s.flows = append(s.flows, f)
			}
			if err == nil && s.ports[f.Departure.Port] == nil {
				err = fmt.Errorf("a connection is at the interface %q, which was not handed over", f.Departure.Port)
			}
			if err != nil {
				return err
			}
		case kindObject:
			o, then, err := decodeObject(m)
			if err != nil {
				return err
			}
			objects, at = append(objects, o), then
		default:
			m.close()
			return s.complete(m, objects, at)
		}
	}
}

// complete checks that everything has arrived.
func (s *Successor) complete(m *message, objects []portable.Object, at clock.Instant) error {
	var doc completeDoc
	if err := m.is(kindComplete, &doc); err != nil {
		return err
	}
	if doc.Flows != len(s.flows) || doc.Objects != len(objects) {
		return fmt.Errorf("%d of %d connections and %d of %d objects have arrived", len(s.flows), doc.Flows, len(objects), doc.Objects)
	}
	switch {
	case s.ImportObjects != nil:
		return s.ImportObjects(objects, at)
	case len(objects) != 0:
		return fmt.Errorf("this program does not know the object %s", objects[0].Kind)
	}
	return nil
}

// importAll makes the upper layers.
func (s *Successor) importAll() (err error) {
	for _, f := range s.flows {
		if f.Object == nil {
			continue
		}
		if f.Parted.ULP, err = s.ImportULP(f); err != nil {
			return fmt.Errorf("%v to %v: %w", f.Departure.Tuple.Local, f.Departure.Tuple.Remote, err)
		}
	}
	return nil
}

// hear waits for a message without contents. If the old process has died, this process has
// everything, and goes on alone.
func (s *Successor) hear(k kind) error {
	if s.lone {
		return nil
	}
	m, err := s.link.expect(k, nil)
	if errors.Is(err, errGone) {
		s.lone = true
		s.Log.Warn("the old process has died, and has handed everything over before", "pid", s.pid)
		return nil
	}
	if err == nil {
		m.close()
	}
	return err
}

// Commit says that this process has the queues. When Commit returns nil, the connections are
// this process's.
func (s *Successor) Commit() error {
	s.at(kindBound)
	if err := s.link.until(time.Now().Add(stepWait)); err != nil {
		return err
	}
	if !s.lone {
		if err := s.link.send(kindBound, nil, nil); err != nil && !errors.Is(err, errGone) {
			return err
		}
	}
	s.at(kindCommit)
	if err := s.hear(kindCommit); err != nil {
		return err
	}
	s.at(kindTaken)
	if s.lone {
		return nil
	}
	if err := s.link.send(kindTaken, nil, nil); err != nil && !errors.Is(err, errGone) {
		return err
	}
	return nil
}

// Install makes the engines of nics run the connections, and makes this process the recorded
// owner of the interfaces. installed is called for each connection that runs; nil: no call.
// moved returns the nic.Options.Moved of a connection; nil: none. Install returns how many
// connections run, and one error for each that is lost.
func (s *Successor) Install(ctx context.Context, nics []*nic.NIC, moved func(*Flow) func(), installed func(*Flow, *nic.Flow)) (running int, lost []error) {
	s.at(kindDone)
	byName := map[string]*nic.NIC{}
	for _, n := range nics {
		byName[n.Link().Name] = n
		if err := n.Keep(); err != nil {
			s.Log.Error("claims not signed", "link", n.Link().Name, "err", err)
		}
	}
	for _, list := range s.byPort() {
		var in []nic.Incoming
		for _, f := range list {
			in = append(in, nic.Incoming{Departure: f.Departure, Parted: f.Parted, Hold: f.hold})
			f.hold = nil
			if moved != nil {
				in[len(in)-1].Moved = moved(f)
			}
		}
		flows, errs := byName[list[0].Departure.Port].Receive(ctx, in)
		for i, err := range errs {
			if err != nil {
				lost = append(lost, err)
				continue
			}
			running++
			if installed != nil {
				installed(list[i], flows[i])
			}
		}
	}
	for _, n := range nics {
		if err := n.Sweep(); err != nil {
			s.Log.Error("entries of flows not removed", "link", n.Link().Name, "err", err)
		}
	}
	s.report(running, lost)
	return running, lost
}

// byPort returns the connections by interface.
func (s *Successor) byPort() (lists map[string][]*Flow) {
	lists = map[string][]*Flow{}
	for _, f := range s.flows {
		lists[f.Departure.Port] = append(lists[f.Departure.Port], f)
	}
	return lists
}

// report tells the old process, if it lives, how it went.
func (s *Successor) report(running int, lost []error) {
	doc := doneDoc{Running: running}
	for _, err := range lost {
		doc.Lost = append(doc.Lost, err.Error())
	}
	if err := s.link.send(kindDone, doc, nil); err != nil && !s.lone {
		s.Log.Warn("the old process was not told that the connections run", "err", err)
	}
	s.link.conn.Close()
}

// Check reports interfaces of the old process that are not in the list, whose connections
// would be lost.
func (s *Successor) Check(links []string) error {
	for _, name := range s.Ports() {
		if !slices.Contains(links, name) {
			return fmt.Errorf("the old process has the interface %s, and this one has not", name)
		}
	}
	for _, name := range links {
		if s.ports[name] == nil {
			return fmt.Errorf("the old process does not have the interface %s: add it after the upgrade", name)
		}
	}
	return nil
}

// Refuse ends the upgrade: the old process keeps its connections, which run on as soon as
// this process has closed its interfaces. The caller must close them before Refuse. After
// Install, Refuse does nothing.
func (s *Successor) Refuse(why error) {
	for _, p := range s.ports {
		p.inheritance.Close()
	}
	for _, f := range s.flows {
		f.close()
	}
	for _, o := range s.early {
		closeFiles(o.Files)
	}
	s.ports, s.flows, s.early = nil, nil, nil
	s.link.until(time.Now().Add(time.Second))
	s.link.send(kindRefuse, reason{why.Error()}, nil) // an error means that the old process has gone
	s.link.conn.Close()
}

func (s *Successor) at(k kind) {
	s.Log.Debug("upgrade", "next", k.String())
	if s.At != nil {
		s.At(k.String())
	}
}
