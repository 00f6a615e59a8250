package perf

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// stagPeer is the other end if that is stag perf: each lane has its own memory, and a
// pair of hellos and notes to come to terms by.
type stagPeer struct {
	run   *runner
	notes []*notes
}

// notes is a lane whose peer is stag perf.
type notes struct {
	l       *lane
	out, in *rdma.MR // what messages are sent from, or read from by the peer; what they come to
	inbox   *rdma.MR // where the peer's notes come to
	theirs  ticket

	told, noted uint64 // notes
	peerReady   uint32 // the round
	bye         bool   // the peer says so
	cut         bool   // and that it was interrupted
	notesRound
}

// notesRound is how far the notes are with a round.
type notesRound struct {
	round    uint32
	credited uint64 // messages that the peer says have arrived
	repaid   uint64 // messages of the peer's that it has been told of
	stopped  bool   // all have been posted

	lastTold   bool
	arrivedAll bool // says the peer
	doneTold   bool
	peerDone   bool
	peer       note // done
}

func (p *stagPeer) makeLanes() error {
	for i := range p.run.QPs {
		n := &notes{l: &lane{run: p.run, index: i}}
		n.l.talk = n
		if err := n.make(); err != nil {
			return err
		}
		p.notes, p.run.lanes = append(p.notes, n), append(p.run.lanes, n.l)
	}
	return nil
}

// make makes everything of a lane. The adapter's Close takes it away.
func (n *notes) make() error {
	o := n.l.run.Options
	// A message may be a Write and a Send, a note is.
	sends := 2*o.txDepth() + 4*notesAtOnce
	ep, err := n.l.run.adapter.CreateEndpoint(rdma.EndpointConfig{
		OneCQ: true, Size: notesAtOnce * noteLen, Access: rdma.LocalWrite | rdma.RemoteWrite,
		QP: rdma.QPConfig{SendDepth: sends, RecvDepth: o.receives(), MaxSGE: 1, MaxInline: max(o.Inline, noteLen)},
	})
	if err != nil {
		return err
	}
	n.l.qp, n.l.cq, n.inbox = ep.QP, ep.SendCQ, ep.MR
	if n.out, err = ep.PD.AllocMR(o.outgoing(), rdma.RemoteRead); err != nil {
		return err
	}
	if n.in, err = ep.PD.AllocMR(o.incoming(), rdma.LocalWrite|rdma.RemoteWrite); err != nil {
		return err
	}
	n.l.local = place{mr: n.out}
	if o.Test.op() == rdma.WRRead {
		n.l.local.mr = n.in
	}
	return n.l.listen(o.receives())
}

func (p *stagPeer) active() bool { return true }

func (p *stagPeer) why(err error) error { return err }

// begin waits until both ends of every lane are ready for the round.
func (p *stagPeer) begin(ctx context.Context, number uint32, size int) (bye bool, err error) {
	var byes atomic.Bool
	err = p.each(func(n *notes) error {
		bye, err := n.meetRound(ctx, number, size)
		if bye {
			byes.Store(true)
		}
		return err
	})
	return byes.Load(), err
}

// each does something for every lane at the same time.
func (p *stagPeer) each(do func(*notes) error) error {
	return p.run.each(func(l *lane) error { return do(p.notes[l.index]) })
}

func (p *stagPeer) during(ctx context.Context, _ *meter, do func(context.Context) error) error {
	return do(ctx)
}

// settle adds what the peer's notes say of its own messages.
func (p *stagPeer) settle(_ context.Context, m *meter, size int) (Bandwidth, error) {
	var theirs found
	for _, n := range p.notes {
		theirs.messages += n.peer.measured
		theirs.took = max(theirs.took, n.peer.took)
		theirs.peak = max(theirs.peak, n.peer.peak) // the last of them knows it
	}
	return p.run.bandwidth(m, size, theirs), nil
}

func (p *stagPeer) cut() bool { return p.notes[0].peerDone && p.run.serves() }

// leave ends the rounds. It remembers whether the peer was interrupted.
func (p *stagPeer) leave(ctx context.Context) error {
	err := p.each(func(n *notes) error { return n.leave(ctx) })
	for _, n := range p.notes {
		p.run.result.Interrupted = p.run.result.Interrupted || n.cut && !p.run.Endless
	}
	return err
}

// meetRound waits until both ends are ready for a round. bye: there will be none.
func (n *notes) meetRound(ctx context.Context, round uint32, size int) (bye bool, err error) {
	n.start(round, size)
	n.pattern(n.l.run.serves()).Fill(n.out.Bytes()[:n.l.run.slots(size)*size], 0)
	if err := n.tell(note{kind: ready, round: round}); err != nil {
		return false, err
	}
	for n.peerReady != round && !n.bye {
		if err := n.l.await(ctx, 0); err != nil {
			return false, err
		}
	}
	n.l.begun = time.Now()
	return n.bye, nil
}

// start forgets the round before.
func (n *notes) start(round uint32, size int) {
	n.l.progress = progress{size: size}
	n.notesRound = notesRound{round: round}
}

// leave ends the rounds, and the connection in good order. Only when the peer
// has said goodbye it has found nothing wrong.
func (n *notes) leave(ctx context.Context) error {
	last := note{kind: goodbye}
	if n.l.run.interrupted() {
		last.count = 1
	}
	if err := n.tell(last); err != nil {
		return err
	}
	for !n.bye {
		if err := n.l.await(ctx, 0); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the connection was not closed within %v", patience))
	defer cancel()
	return n.l.qp.Disconnect(ctx)
}

// patience is how long closing may take.
const patience = 10 * time.Second
