package perf

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// stagPeer implements peer if the other end is stag perf. Each lane has its own memory. The two ends of a lane exchange
// a pair of hellos, and then notes.
type stagPeer struct {
	run   *runner
	notes []*notes
}

// notes is a lane whose peer is stag perf.
type notes struct {
	l       *lane
	out, in *rdma.MR // out has the messages that this end sends or the peer reads; in has the messages that arrive
	inbox   *rdma.MR // memory in which the peer's notes arrive
	theirs  ticket

	told, noted uint64 // numbers of notes sent and received
	peerReady   uint32 // last round for which the peer is ready
	bye         bool   // the peer has sent goodbye
	cut         bool   // the peer was interrupted
	notesRound
}

// notesRound is the state of a lane's notes in a round.
type notesRound struct {
	round    uint32
	credited uint64 // number of this end's messages that the peer has reported as arrived
	repaid   uint64 // number of the peer's messages that this end has reported to the peer
	stopped  bool   // all messages of this end have been posted

	lastTold   bool
	arrivedAll bool // the peer has reported that all messages have arrived
	doneTold   bool
	peerDone   bool
	peer       note // the peer's note of kind done
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

// make makes the QP, the regions and the receives of a lane. The adapter's Close closes them.
func (n *notes) make() error {
	o := n.l.run.Options
	// A message may need both a Write and a Send. A note always needs both.
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

// each calls do for every lane concurrently.
func (p *stagPeer) each(do func(*notes) error) error {
	return p.run.each(func(l *lane) error { return do(p.notes[l.index]) })
}

func (p *stagPeer) during(ctx context.Context, _ *meter, do func(context.Context) error) error {
	return do(ctx)
}

// settle returns the bandwidth of both ends together. The peer's figures for its own messages come from its notes.
func (p *stagPeer) settle(_ context.Context, m *meter, size int) (Bandwidth, error) {
	var theirs found
	for _, n := range p.notes {
		theirs.messages += n.peer.measured
		theirs.took = max(theirs.took, n.peer.took)
		theirs.peak = max(theirs.peak, n.peer.peak) // only the last lane reports the peak
	}
	return p.run.bandwidth(m, size, theirs), nil
}

func (p *stagPeer) cut() bool { return p.notes[0].peerDone && p.run.serves() }

// leave ends the rounds. It records whether the peer was interrupted.
func (p *stagPeer) leave(ctx context.Context) error {
	err := p.each(func(n *notes) error { return n.leave(ctx) })
	for _, n := range p.notes {
		p.run.result.Interrupted = p.run.result.Interrupted || n.cut && !p.run.Endless
	}
	return err
}

// meetRound waits until both ends are ready for a round. bye reports that there are no more rounds.
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

// start resets the state for a round.
func (n *notes) start(round uint32, size int) {
	n.l.progress = progress{size: size}
	n.notesRound = notesRound{round: round}
}

// leave ends the rounds, and closes the connection normally. It waits for the peer's goodbye, because only the goodbye
// says that the peer has found no wrong octets.
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
