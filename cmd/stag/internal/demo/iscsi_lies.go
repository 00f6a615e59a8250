package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
)

// Ends of a command to which a lie was told.
const (
	completed = "completed" // with the honest data
	failed    = "failed"
	canceled  = "canceled" // before the lie
)

// lie is a PDU that must be refused.
type lie struct {
	tried   string
	by      pair.Side // who must refuse: A is the initiator, B the target
	why     flow.Reason
	command string // what becomes of the command
	write   bool   // the initiator's command is a write

	toInitiator func(l *liar, command *pdu.Header) error
	toTarget    func(l *liar, r2t *pdu.Header) error
}

// elsewhere is a tag of another entry of the table, and earlier the previous one of the
// same entry: the low octet of a tag is the key, the rest is the index.
func elsewhere(t pdu.Tag) pdu.Tag { return t ^ 1<<20 }
func earlier(t pdu.Tag) pdu.Tag   { return t&^0xff | (t-1)&0xff }

// reading is a lie about the data of a read, which the honest data follows.
func reading(tag func(pdu.Tag) pdu.Tag, sn, off uint32) func(*liar, *pdu.Header) error {
	return func(l *liar, c *pdu.Header) error {
		itt := c.InitiatorTaskTag()
		return errors.Join(l.dataIn(c, tag(itt), sn, off, forged, false), l.dataIn(c, itt, 0, 0, honest, true))
	}
}

// writing is a lie about the data of a write.
func writing(tag func(pdu.Tag) pdu.Tag, sn, off uint32) func(*liar, *pdu.Header) error {
	return func(l *liar, r2t *pdu.Header) error {
		return l.dataOut(tag(r2t.TargetTransferTag()), sn, off, forged)
	}
}

func same(t pdu.Tag) pdu.Tag { return t }

var lies = []lie{
	{tried: "Data-In with a tag that no command has", by: pair.A, why: flow.NoTask, command: completed, toInitiator: reading(elsewhere, 0, 0)},
	{tried: "Data-In with the tag of an earlier command", by: pair.A, why: flow.NoTask, command: completed, toInitiator: reading(earlier, 0, 0)},
	{tried: "Data-In behind the buffer of its command", by: pair.A, why: flow.OutOfBounds, command: failed, toInitiator: reading(same, 0, blockSize)},
	{tried: "Data-In out of turn", by: pair.A, why: flow.DataSNGap, command: failed, toInitiator: reading(same, 1, 0)},
	{tried: "Data-In for a write", by: pair.A, why: flow.WrongDirection, command: failed, write: true,
		toInitiator: func(l *liar, c *pdu.Header) error {
			return errors.Join(l.dataIn(c, c.InitiatorTaskTag(), 0, 0, forged, false), l.answer(pdu.OpResponse, c))
		}},
	{tried: "R2T for octets behind the buffer", by: pair.A, why: flow.OutOfBounds, command: failed, write: true,
		toInitiator: func(l *liar, c *pdu.Header) error {
			h := l.reply(pdu.OpR2T, c.InitiatorTaskTag())
			h.SetLUN(c.LUN())
			h.SetTargetTransferTag(1)
			h.SetStatSN(l.params.StatSN)
			h.SetBufferOffset(blockSize)
			h.SetDesiredLength(blockSize)
			return l.write(h, 0, 0)
		}},
	{tried: "Data-In for a command that was canceled", by: pair.A, why: flow.Stale, command: canceled,
		toInitiator: func(*liar, *pdu.Header) error { return nil }}, // beTarget sends it when the abort arrives
	{tried: "Data-Out with a tag that no command has", by: pair.B, why: flow.NoTask, command: completed, toTarget: writing(elsewhere, 0, 0)},
	{tried: "Data-Out with the tag of an earlier command", by: pair.B, why: flow.Stale, command: completed, toTarget: writing(earlier, 0, 0)},
	{tried: "Data-Out behind what was asked for", by: pair.B, why: flow.OutOfBounds, command: failed, toTarget: writing(same, 0, blockSize)},
	{tried: "Data-Out out of turn", by: pair.B, why: flow.DataSNGap, command: failed, toTarget: writing(same, 1, 0)},
}

// lies tells all lies, each in a session of its own.
func (s *san) lies(ctx context.Context) (all []ISCSIRefusal, err error) {
	l, at, err := s.listenForLies(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	for i := range lies {
		c := &lies[i]
		tell := func(ctx context.Context) (func() error, error) { return c.toSideA(ctx, s, l, at) }
		if c.by == pair.B {
			tell = func(ctx context.Context) (func() error, error) { return c.toSideB(ctx, s, byte(i)) }
		}
		if err := c.told(ctx, s, tell); err != nil {
			return nil, fmt.Errorf("%s: %w", c.tried, err)
		}
		all = append(all, ISCSIRefusal{
			Tried: c.tried, By: c.by.String(), Counter: c.why.Word(), Reason: c.why.String(), Command: c.command, Untouched: true,
		})
	}
	return all, nil
}

// listenForLies makes the socket of the lying target at side B.
func (s *san) listenForLies(ctx context.Context) (l net.Listener, at netip.AddrPort, err error) {
	listen := func() (err error) {
		var c net.ListenConfig
		l, err = c.Listen(ctx, "tcp", net.JoinHostPort(s.server.Addr().Addr().String(), "0"))
		return err
	}
	if err := s.at(pair.B, listen); err != nil {
		return nil, at, err
	}
	return l, l.Addr().(*net.TCPAddr).AddrPort(), nil
}

// at runs f in the namespace of a side, if it has one.
func (s *san) at(side pair.Side, f func() error) error {
	if s.pair == nil {
		return f()
	}
	return s.pair.Do(side, f)
}

// told tells the lie, waits until the refusal has been counted, and calls the function that
// tell returns.
func (c *lie) told(ctx context.Context, s *san, tell func(context.Context) (check func() error, err error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not refused within %v", patience))
	defer cancel()
	before, err := s.counter(ctx, c.by, "reason", c.why.Word())
	if err != nil {
		return err
	}
	check, err := tell(ctx)
	if err != nil {
		return err
	}
	return errors.Join(c.counted(ctx, s, before), check())
}

// counted waits until more refusals have been counted than before.
func (c *lie) counted(ctx context.Context, s *san, before uint64) error {
	for {
		now, err := s.counter(ctx, c.by, "reason", c.why.Word())
		if err == nil && now > before || err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("side %v counts no %s: %w", c.by, c.why.Word(), context.Cause(ctx))
		}
	}
}

// toSideA tells the lie to an initiator at side A. check ends the session, and looks at the
// memory.
func (c *lie) toSideA(ctx context.Context, s *san, listener net.Listener, at netip.AddrPort) (check func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	commanded, done := make(chan struct{}, 1), make(chan error, 1)
	go func() { done <- c.accept(ctx, listener, commanded) }()
	session, err := iscsi.DialSession(ctx, s.url(at), s.config())
	if err != nil {
		cancel()
		return nil, fmt.Errorf("side A: %w", err)
	}
	mem := make([]byte, 3*blockSize)
	treasure.Fill(mem, 0)
	check = func() error {
		session.Close() // the lie may have ended the session
		cancel()
		<-done // the liar's connection may have been reset
		return c.untouched(mem)
	}
	if err := c.do(ctx, session, mem[blockSize:2*blockSize], commanded); err != nil {
		return nil, errors.Join(err, check())
	}
	return check, nil
}

// do executes the command to which the lie is told, and checks its end.
func (c *lie) do(ctx context.Context, session *iscsi.Session, b []byte, commanded <-chan struct{}) error {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	if c.command == canceled {
		go func() {
			select {
			case <-commanded:
				stop()
			case <-asking.Done():
			}
		}()
	}
	cdb := scsi.Read(0, 1, 0)
	command := iscsi.Command{LUN: demoLUN, CDB: cdb[:10], In: b}
	if c.write {
		cdb = scsi.Write(0, 1, 0)
		command.In, command.Out = nil, b
	}
	_, err := session.Do(asking, command)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if (err == nil) != (c.command == completed) {
		return fmt.Errorf("the command ended with %v, and should be %s", err, c.command)
	}
	return nil
}

// accept lets the lying target serve one session.
func (c *lie) accept(ctx context.Context, listener net.Listener, commanded chan struct{}) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	l := &liar{Conn: conn, commanded: commanded}
	defer l.hurry(ctx)()
	return l.beTarget(c.toInitiator)
}

// untouched demands that the memory of an initiator holds what it had, and in the block of
// the command the honest data if that has come.
func (c *lie) untouched(mem []byte) error {
	want := make([]byte, len(mem))
	treasure.Fill(want, 0)
	middle := want[blockSize : 2*blockSize]
	came := !c.write && honest.Differs(mem[blockSize:2*blockSize], 0) < 0
	if came {
		honest.Fill(middle, 0)
	}
	if !bytes.Equal(mem, want) || came != (c.command == completed) && c.command != failed {
		return errors.New("the memory of side A has changed")
	}
	return nil
}

// guarded is how many blocks of the disk the lying initiator must not change, and lieBlock
// is one of them.
const guarded = 2 * lieBlock

// toSideB tells the lie to the target of side B. check looks at the disk.
func (c *lie) toSideB(ctx context.Context, s *san, number byte) (check func() error, err error) {
	disk := s.disk.Lend(0, guarded*blockSize, true)
	treasure.Fill(disk, 0)
	var conn net.Conn
	err = s.at(pair.A, func() (err error) {
		var d net.Dialer
		conn, err = d.DialContext(ctx, "tcp", s.server.Addr().String())
		return err
	})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	l := &liar{Conn: conn}
	defer l.hurry(ctx)()
	status, err := l.beInitiator(ctx, pdu.ISID{0x80, 0, 0, 0, 0, number}, c.toTarget)
	if err != nil {
		return nil, err
	}
	if (status == 0) != (c.command == completed) {
		return nil, fmt.Errorf("the command ended with status %#02x, and should be %s", status, c.command)
	}
	return func() error {
		want := make([]byte, len(disk))
		treasure.Fill(want, 0)
		if c.command == completed {
			honest.Fill(want[lieBlock*blockSize:][:blockSize], 0)
		}
		if !bytes.Equal(disk, want) {
			return errors.New("the disk of side B has changed")
		}
		return nil
	}, nil
}
