package flow

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/test/scenario"
	"github.com/stag-rdma/stag/test/world"
	"github.com/stag-rdma/stag/tpt"
)

// TestSessionNetworks runs sessions of several connections through simulated networks that
// lose, duplicate and reorder segments, so that commands overtake each other. All commands
// are ORDERED, and for the same blocks: each read must have the octets of the youngest write
// before it, in the order of CmdSN. Every command completes once.
func TestSessionNetworks(t *testing.T) {
	scenario.Play(t, *seed, fewNetworks(), func(seed uint64) error { return newShared(t, seed).play(pdu.Ordered) })
}

// TestSessionSimple is TestSessionNetworks with commands that may be executed in any order,
// and whose results nobody compares: the window of the session keeps to its limit.
func TestSessionSimple(t *testing.T) {
	scenario.Play(t, *seed, fewNetworks(), func(seed uint64) error { return newShared(t, seed).play(pdu.Simple) })
}

// shared is a session of several connections over one simulated link, with both ends.
type shared struct {
	t       *testing.T
	luck    *rand.Rand
	w       *world.World
	ends    []*end
	servers []*server
	conns   []world.Conn
	board   signal.Board
	numbers *Numbers
	session *TargetSession
	done    []outcome
	most    int32 // requests that were in progress at a time
}

// outcome is a command that has completed.
type outcome struct {
	sn    seq.Num
	write bool
	data  []byte
}

const sharedOctets = 2048

// newShared makes a session of a seed.
func newShared(t *testing.T, seed uint64) *shared {
	x := &shared{t: t, luck: rand.New(rand.NewPCG(seed, 11))}
	link, _ := weather(seed)
	link.Forge = 0 // a wrong octet ends the session
	p := usual()
	p.InitialR2T, p.ImmediateData = x.luck.IntN(2) == 0, x.luck.IntN(2) == 0
	p.FirstBurstLength, p.MaxBurstLength = 512, 1024
	p.MaxCmdSN = p.CmdSN + serverWindow - 1
	x.numbers = NewNumbers(&x.board)
	x.numbers.Begin(p.CmdSN, p.MaxCmdSN)
	x.numbers.Opened.Fire = func() { x.ring(0) }
	x.session = NewTargetSession(p.CmdSN, serverWindow, &x.board)
	table := newTable(t)
	for i := range 2 + x.luck.IntN(3) {
		p.CID = uint16(i)
		e := beginShared(t, table, p, 6, x.numbers)
		theirs := p
		theirs.MaxSendLength, theirs.MaxRecvLength = p.MaxRecvLength, p.MaxSendLength
		s := serveShared(t, theirs, x.luck.IntN(2) == 0, x.session, x.servers)
		s.tgt.Turn.Fire = func() { x.w.Engines[1].Ring(x.conns[i].ID[1]) }
		x.ends, x.servers = append(x.ends, e), append(x.servers, s)
	}
	w, err := world.New(world.Config{Link: link, Edit: func(side int, c *engine.Config) {
		if side == 0 {
			c.Table = table
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	x.w = w
	for i, e := range x.ends {
		c, err := w.Connect(world.Flow{}, e.f, x.servers[i].ulp)
		if err != nil {
			t.Fatal(err)
		}
		x.conns = append(x.conns, c)
	}
	return x
}

func (x *shared) ring(side int) {
	for _, c := range x.conns {
		x.w.Engines[side].Ring(c.ID[side])
	}
}

// play posts commands over all connections until enough have completed.
func (x *shared) play(a pdu.Attribute) error {
	const commands = 60
	posted, flying := 1, 0
	if err := x.attend(); err != nil {
		return err
	}
	for len(x.done) < commands {
		for _, e := range x.ends {
			if posted <= commands && e.q.Room() != 0 && x.luck.IntN(3) != 0 {
				if n, err := e.q.Post(x.command(uint64(posted), a)); n != 1 {
					return fmt.Errorf("posted %d: %v", n, err)
				}
				posted, flying = posted+1, flying+1
			}
		}
		x.ring(0)
		from := len(x.done)
		if flying == 0 {
			continue
		}
		var failed error
		if err := x.w.Run(time.Minute, func() bool {
			failed = x.step()
			return failed != nil || len(x.done) != from
		}); err != nil || failed != nil {
			return fmt.Errorf("%v, %v, with %d done of %d, ExpCmdSN %d", err, failed, len(x.done), posted-1, x.session.next())
		}
		flying -= len(x.done) - from
	}
	if x.most > serverWindow {
		return fmt.Errorf("%d commands in progress, and the window is %d", x.most, serverWindow)
	}
	if a == pdu.Ordered {
		return x.judge()
	}
	return nil
}

// attend takes the unit attention of the power-on.
func (x *shared) attend() error {
	e := x.ends[0]
	if n, err := e.q.Post(Command{LUN: 1 << 48, CDB: make([]byte, 6)}); n != 1 {
		return err
	}
	x.ring(0)
	var got [1]Completion
	return x.w.Run(time.Minute, func() bool {
		x.work()
		return e.q.Poll(got[:]) == 1
	})
}

// command returns a write or a read of the same blocks.
func (x *shared) command(id uint64, a pdu.Attribute) Command {
	c := Command{ID: id, LUN: 1 << 48, CDB: bytes.Clone(read10), Attribute: a}
	binary.BigEndian.PutUint32(c.CDB[2:], 0)
	binary.BigEndian.PutUint16(c.CDB[7:], sharedOctets/512)
	data := make([]byte, sharedOctets)
	if x.luck.IntN(2) == 0 {
		c.CDB[0] = write10[0]
		for i := range data {
			data[i] = byte(id)
		}
		c.Out = [][]byte{data}
		return c
	}
	c.In = [][]byte{data}
	return c
}

// work does what both ends leave to others.
func (x *shared) work() {
	x.board.Deliver()
	for i, s := range x.servers {
		if s.work() {
			x.w.Engines[1].Ring(x.conns[i].ID[1])
		}
	}
	x.most = max(x.most, x.session.busy.Load())
}

// step does the work, and takes completions.
func (x *shared) step() error {
	x.work()
	for i, e := range x.ends {
		var got [1]Completion
		for e.q.Ready() {
			o := x.oldest(e)
			if e.q.Poll(got[:]) != 1 {
				break
			}
			if got[0].Why != OK || got[0].Status() != 0 {
				return fmt.Errorf("connection %d, command %d: %v, status %#x (%v)", i, got[0].ID, got[0].Why, got[0].Status(), e.f.broken)
			}
			x.done = append(x.done, o(got[0].ID))
		}
	}
	return nil
}

// oldest returns what finds a command by its ID, as it is before Poll frees its slot.
func (x *shared) oldest(e *end) func(id uint64) outcome {
	all := map[uint64]outcome{}
	for slot := range e.f.tasks {
		if t := e.f.tasks[slot].Load(); t != nil && t.busy.Load() {
			all[t.id] = outcome{t.cmdSN, t.rights == tpt.RemoteRead, bytes.Clone(t.pieces[0])}
		}
	}
	return func(id uint64) outcome { return all[id] }
}

// judge compares what was read with what was written before.
func (x *shared) judge() error {
	slices.SortFunc(x.done, func(a, b outcome) int { return cmp.Compare(int32(a.sn-b.sn), 0) })
	now := make([]byte, sharedOctets)
	for i, o := range x.done {
		switch {
		case i > 0 && o.sn == x.done[i-1].sn:
			return fmt.Errorf("two commands have the number %d", o.sn)
		case o.write:
			now = o.data
		case !bytes.Equal(o.data, now):
			return fmt.Errorf("the read with number %d has the octets of command %d, want those of %d", o.sn, o.data[0], now[0])
		}
	}
	return nil
}

// beginShared is beginIn for a connection of a session with several.
func beginShared(t tester, table *tpt.Table, p login.Params, slots int, n *Numbers) *end {
	e := beginIn(t, table, p, slots)
	e.f.numbers.shared = n
	return e
}

// serveShared is serve for a connection of a session with several: all have one disk.
func serveShared(t tester, p login.Params, lends bool, session *TargetSession, others []*server) *server {
	s := serve(t, p, lends)
	if len(others) != 0 {
		s.disk, s.unit = others[0].disk, others[0].unit
		s.tgt.cfg.LUNs = map[uint64]*LUN{1 << 48: {Nexus: others[0].tgt.cfg.LUNs[1<<48].Nexus}}
	}
	s.tgt.cfg.Session, s.tgt.member = session, newMember(session, s.tgt)
	return s
}

// TestLateBehindLogout: a request that arrives while another connection logs its connection out
// is not executed, and its number counts as received.
func TestLateBehindLogout(t *testing.T) {
	p := usualTarget()
	session := NewTargetSession(p.CmdSN, serverWindow, new(signal.Board))
	var s [2]*server
	for i := range s {
		p.CID = uint16(i)
		s[i] = serveShared(t, p, false, session, nil)
		s[i].lazy = true
	}
	inquiry := []byte{0x12, 0, 0, 0, 255, 0}
	s[1].hears(s[1].command(1, inquiry, pdu.Final|pdu.Read, 255, nil)) // is with a worker
	s[0].cmdSN = s[1].cmdSN
	s[0].hears(s[0].pdu(pdu.OpLogout, 2, func(h *pdu.Header) {
		h.SetImmediate(true)
		h.SetLogoutReason(pdu.CloseConnection)
		h.SetCID(1)
	}, nil))
	if s[0].tgt.TakeWork().Spread() {
		t.Fatal("the logout does not wait for the worker")
	}
	s[1].hears() // the connection learns of the logout
	s[1].hears(s[1].command(3, inquiry, pdu.Final|pdu.Read, 255, nil))
	s[0].cmdSN = s[1].cmdSN
	if exp, _ := session.Numbers(); exp != s[0].cmdSN {
		t.Errorf("ExpCmdSN %d, want %d", exp, s[0].cmdSN)
	}
	s[1].work()
	if got := s[1].hears(); len(got) != 0 {
		t.Errorf("the connection sends %v", opcodes(got))
	}
	if h := s[0].one(s[0].hears(), pdu.OpLogoutResponse).h; h.Response() != pdu.LogoutClosed || h.ExpCmdSN() != s[0].cmdSN {
		t.Errorf("response %d, ExpCmdSN %d", h.Response(), h.ExpCmdSN())
	}
}
