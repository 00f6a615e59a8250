package iscsi

import (
	"context"
	"errors"
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/iser"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/rdma"
)

// ownAdapter is the configuration of an adapter that nobody else uses.
func (c *ServerConfig) ownAdapter() rdma.Config {
	own := rdma.Config{KernelPort: true, NoControl: true, RegionHeap: 1 << 20}
	if c.hasISER() {
		own.RegionHeap = ISERHeap(c.MaxSessions, c.Depth)
		own.MaxRegions = c.MaxSessions * c.slots(uint8(c.Wishes.ErrorRecoveryLevel))
	}
	return own
}

// ISERHeap returns how many octets of the region heap (rdma.Config.RegionHeap) a Server with
// a portal for iSER needs for so many sessions of this depth.
func ISERHeap(sessions, depth int) uint64 {
	return 1<<20 + uint64(sessions)*uint64(iser.TargetHeap(depth))
}

// register registers the memory of the pool, and of backends that lend all of theirs.
func (s *Server) register(pool []byte) (err error) {
	parts := [][]byte{pool}
	for i := range s.cfg.Targets {
		t := &s.cfg.Targets[i]
		for number, l := range t.LUNs {
			lender, ok := l.Backend.(unit.Lender)
			if !ok {
				continue
			}
			if all := lender.Lend(0, l.Backend.Size(), false); len(all) != 0 {
				parts = append(parts, all)
				s.targets[t.Name].luns[uint64(number)<<48].registered = true
			}
		}
	}
	if s.memory, err = iser.NewMemory(s.cfg.Adapter, parts...); err == nil {
		s.undo.Add(s.memory.Close)
	}
	return err
}

// acceptISER accepts connections of iSER at a portal until the Server closes.
func (s *Server) acceptISER(p *entrance) {
	for {
		r, err := p.iser.Accept(s.life)
		if err != nil {
			if s.life.Err() == nil && !errors.Is(err, rdma.ErrClosed) {
				s.cfg.Log.Warn("accept a connection of iSER", "error", err)
			}
			return
		}
		select {
		case s.logins <- struct{}{}:
			s.running.Go(func() {
				defer func() { <-s.logins }()
				s.greetISER(r, p.group)
			})
		default:
			s.cfg.Log.Warn("too many logins at once", "from", r.Peer().Remote)
			r.Close()
		}
	}
}

// greetISER brings a connection of iSER through the login. group is that of the portal.
func (s *Server) greetISER(r *rdma.ConnRequest, group uint16) {
	ctx, cancel := context.WithTimeout(s.life, s.cfg.LoginTimeout)
	defer cancel()
	from := r.Peer().Remote
	ch, err := iser.New(iser.TargetChannel(s.cfg.Adapter, s.memory, s.cfg.Depth))
	if err != nil {
		s.cfg.Log.Warn("connection of iSER", "from", from, "error", err)
		r.Close()
		return
	}
	if err := ch.Accept(ctx, r, iser.TargetParams()); err != nil {
		s.cfg.Log.Warn("connection of iSER", "from", from, "error", err)
		r.Close()
		ch.Close()
		return
	}
	c := ch.QP().Conn()
	if c.ORD == 0 {
		s.cfg.Log.Warn("connection of iSER: the initiator serves no RDMA Read, so it cannot write", "from", from)
		ch.Close()
		return
	}
	g := &greeting{server: s, local: c.Local, remote: c.Remote, group: group, iser: true}
	if err := g.logIn(ctx, ch); err != nil {
		s.cfg.Log.Warn("login", "from", from, "error", err)
		ch.Close()
		g.abandon()
		return
	}
	if g.conn == nil {
		s.running.Go(func() { s.discoverISER(ch, g) })
		return
	}
	g.conn.takeOverISER(ch)
}

// wishesISER returns what the targets want in the negotiation of a connection of iSER. Data
// comes only when the target asks for it: a command then waits for memory, and both readings
// of the base of a partly unsolicited buffer agree.
func (s *Server) wishesISER() login.Wishes {
	w := s.cfg.Wishes
	w.RDMA, w.RequireR2T, w.NoImmediateData = true, true, true
	w.HeaderDigest, w.DataDigest, w.ErrorRecoveryLevel = nil, nil, 0 // RDMA protects the octets
	w.MaxConnections = 1
	w.InitiatorRecvLength, w.TargetRecvLength, w.UnexpectedPDUs = iser.SendLength, iser.RecvLength, iser.Unexpected
	return w
}

// logIn runs the login. Before the final Login Response leaves, the machine of the session
// is there, and memory for the commands that follow.
func (g *greeting) logIn(ctx context.Context, ch *iser.Channel) error {
	machine, err := g.machine(ctx, g.server.wishesISER())
	if err != nil {
		return err
	}
	return ch.Converse(ctx, nil, machine, func() error {
		g.params = machine.Params()
		if g.conn != nil {
			g.conn.params = g.params
			g.conn.equip(flow.TargetConfig{Slots: iser.Slots(g.server.cfg.Depth)}, true)
		}
		return ch.Start(iser.RecvLength, g.params.MaxSendLength)
	})
}

// takeOverISER makes the session's machine the owner of the connection.
func (e *connection) takeOverISER(ch *iser.Channel) {
	e.iser = iser.NewTarget(ch, e.server.memory, e.machine)
	e.conn = e.iser
	e.announce()
	e.iser.Run()
}

// discoverISER serves a discovery session.
func (s *Server) discoverISER(ch *iser.Channel, g *greeting) {
	defer func() {
		ch.Close()
		<-s.asking
	}()
	d := g.discovery(ch.SendAll)
	for over := false; !over; {
		ctx, cancel := context.WithTimeout(s.life, discoveryTimeout)
		m, err := ch.Next(ctx)
		cancel()
		if err != nil {
			return
		}
		if over, err = d.serve(m.PDU, m.Data); err != nil || ch.Release(&m) != nil {
			return
		}
	}
	ctx, cancel := context.WithTimeout(s.life, time.Second)
	defer cancel()
	ch.QP().Disconnect(ctx) // Close follows in any case
}
