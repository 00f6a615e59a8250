package rdma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/stream"
)

// QPConfig says what a QP is like. The CQs must be set; zero means the default
// elsewhere.
type QPConfig struct {
	SendCQ, RecvCQ *CQ // may be the same

	SendDepth int // send work requests at a time; 0 means 128
	RecvDepth int // receive work requests at a time; 0 means 128
	MaxSGE    int // elements of a work request's list; 0 means 4
	MaxInline int // octets of inline data; 0 means 64, NoInline none
}

// NoInline is for QPConfig.MaxInline: a QP that takes no inline data.
const NoInline = -1

// presetDepth is the depth of a queue unless its QPConfig says another.
const presetDepth = 128

// fill completes c, or says everything that is wrong with it.
func (c QPConfig) fill() (QPConfig, error) {
	var errs []error
	if c.SendCQ == nil || c.RecvCQ == nil {
		errs = append(errs, errors.New("SendCQ and RecvCQ must be set: they may be the same"))
	}
	for _, f := range []struct {
		name         string
		value        *int
		preset, most int
	}{
		{"SendDepth", &c.SendDepth, presetDepth, maxQPDepth},
		{"RecvDepth", &c.RecvDepth, presetDepth, maxQPDepth},
		{"MaxSGE", &c.MaxSGE, 4, maxSGE},
		{"MaxInline", &c.MaxInline, 64, maxInline},
	} {
		if *f.value == 0 {
			*f.value = f.preset
		}
		if f.name == "MaxInline" && *f.value == NoInline {
			*f.value = 0
			continue
		}
		if *f.value < 1 || *f.value > f.most {
			errs = append(errs, fmt.Errorf("%s is %d: choose 1 to %d", f.name, *f.value, f.most))
		}
	}
	return c, errors.Join(errs...)
}

// QP is a queue pair: one end of a reliable connection, made once and connected
// once. It is safe for concurrent use; work requests of several goroutines are
// done in the order in which their calls come to pass.
type QP struct {
	// Fixed after CreateQP.
	adapter *Adapter
	pd      *PD
	machine *rdmap.QP
	cfg     QPConfig
	done    chan struct{} // closed when the connection is gone

	conn  atomic.Pointer[adapter.Conn] // set when the connection is the QP's
	over  sync.Once                    // closes done
	gone  sync.Once                    // takes the QP out of what it uses
	fatal atomic.Uint32                // untold, telling, told: the event about it

	started atomic.Bool // it has, or had, a connection

	// Held while posting. No engine takes them.
	sending, receiving sync.Mutex

	mu      sync.Mutex // guards what follows; held briefly
	stage   stage
	cancel  context.CancelCauseFunc // ends the attempt to connect that is under way; nil: none is
	settled chan struct{}           // closed when that attempt is over
	agreed  Conn
	doomed  error // stage connecting: why it must not succeed
	closed  bool
}

// stage is how far a QP is on its way to a connection.
type stage uint8

const (
	fresh      stage = iota
	connecting       // Dial or Accept is at it
	connected        // it has, or had, a connection
)

// Conn is what the two ends of a connection have agreed on.
type Conn struct {
	Local, Remote netip.AddrPort
	Initiator     bool   // this end dialled
	Revision      int    // of MPA
	CRC           bool   // FPDUs are checked, in both directions
	SendMarkers   bool   // the peer wanted Markers
	RecvMarkers   bool   // we did
	IRD           int    // RDMA Reads of the peer's at a time
	ORD           int    // RDMA Reads of ours at a time
	Depths        bool   // the peer has sent its read depths: PeerIRD and PeerORD
	PeerIRD       int    // RDMA Reads of ours that it would serve at a time, as it sent it (RFC 6581 §9.1): 16383 leaves it to the applications
	PeerORD       int    // RDMA Reads that it wants to have under way at a time, as it sent it
	PrivateData   []byte // of the peer's Request or Reply
	Path          string // "kernel port", or the port and how it is used
}

// CreateQP makes a QP that is not connected yet. Receives can be posted to it
// already, and should be: a Send that finds none ends the connection.
func (pd *PD) CreateQP(cfg QPConfig) (*QP, error) {
	done, err := pd.adapter.device.Use()
	if err != nil {
		return nil, fmt.Errorf("create QP: %w", err)
	}
	defer done()
	cfg, err = cfg.fill()
	if err != nil {
		return nil, fmt.Errorf("create QP: %w", err)
	}
	number, err := pd.adapter.reserveNumber()
	if err != nil {
		return nil, fmt.Errorf("create QP: %w", err)
	}
	qp := &QP{adapter: pd.adapter, pd: pd, cfg: cfg, done: make(chan struct{})}
	qp.machine = rdmap.New(rdmap.Config{
		Number: number, PD: pd.domain, Table: pd.adapter.table, Board: pd.adapter.board,
		SendCQ: cfg.SendCQ.queue, RecvCQ: cfg.RecvCQ.queue, SendDepth: cfg.SendDepth, RecvDepth: cfg.RecvDepth,
		MaxSGE: cfg.MaxSGE, MaxInline: cfg.MaxInline,
	})
	qp.machine.News.Fire = qp.news
	if err := qp.enlist(); err != nil {
		pd.adapter.freeNumber(number)
		return nil, fmt.Errorf("create QP: %w", err)
	}
	pd.adapter.log.Info("QP created", "qp", qp.Number())
	return qp, nil
}

// enlist makes the QP known to what it uses.
func (qp *QP) enlist() error {
	if err := qp.pd.enter(&qp.pd.qps); err != nil {
		return err
	}
	if err := qp.cfg.SendCQ.join(qp); err != nil {
		qp.pd.leave(&qp.pd.qps)
		return fmt.Errorf("SendCQ: %w", err)
	}
	if err := qp.cfg.RecvCQ.join(qp); err != nil {
		qp.cfg.SendCQ.leave(qp)
		qp.pd.leave(&qp.pd.qps)
		return fmt.Errorf("RecvCQ: %w", err)
	}
	qp.adapter.mu.Lock()
	tooLate := qp.adapter.shut // Close would not see it
	if !tooLate {
		qp.adapter.qps[qp] = struct{}{}
	}
	qp.adapter.mu.Unlock()
	if tooLate {
		qp.delist()
		return fmt.Errorf("the adapter is %w", ErrClosed)
	}
	return nil
}

func (qp *QP) delist() {
	qp.detach()
	qp.adapter.device.Depart(qp.connection())
	qp.adapter.retire(qp)
	qp.cfg.SendCQ.leave(qp)
	qp.cfg.RecvCQ.leave(qp)
	qp.pd.leave(&qp.pd.qps)
}

// Number is the QP's number, which its completions carry.
func (qp *QP) Number() uint32 { return qp.machine.Number() }

// State is the QP's state now.
func (qp *QP) State() State { return qp.machine.State() }

// Config is what the QP was made with, defaults filled in.
func (qp *QP) Config() QPConfig { return qp.cfg }

// Conn is what was agreed on with the peer. The zero Conn before the QP has
// been connected.
func (qp *QP) Conn() Conn {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	return qp.agreed
}

// Done is closed when the connection is gone, everything posted has completed,
// and no memory is accessed for this QP any more.
func (qp *QP) Done() <-chan struct{} { return qp.done }

// Err is why the connection ended, or is ending, in bad order: a *QPError. nil
// while all is well, and after a close in good order.
func (qp *QP) Err() error {
	if c := qp.machine.Cause(); c != (rdmap.Cause{}) {
		return &QPError{QP: qp.Number(), Cause: c}
	}
	return nil
}

// How far the event about a QP's end is.
const (
	untold uint32 = iota
	telling
	told
)

// news runs, after a step, when the state has changed. It does not block. Several
// goroutines may run it at once. Only one tells of the end, and none says that the
// QP is done before that is told: Adapter.Close waits for what was begun by then.
func (qp *QP) news() {
	err := qp.Err()
	asked := errors.Is(err, ErrClosed) || errors.Is(err, stream.ErrAborted)
	if err != nil && !asked && qp.fatal.CompareAndSwap(untold, telling) {
		// The goroutine that steps may hold locks that a handler of the program wants.
		qp.adapter.device.Go(func() {
			qp.adapter.fatal.log(qp.adapter.log, slog.LevelWarn, "QP fatal", "qp", qp.Number(), "err", err)
		})
		qp.adapter.events.add(Event{Type: QPFatal, QP: qp, Err: err})
		qp.fatal.Store(told)
	}
	// The goroutine that tells looks again afterwards.
	if qp.machine.Dead() && qp.fatal.Load() != telling {
		qp.over.Do(func() { close(qp.done) })
	}
}

// ring tells the connection, if there is one, that there is something to do.
func (qp *QP) ring() {
	if c := qp.conn.Load(); c != nil {
		c.Wake()
	}
}

// Disconnect ends the connection in good order: what has been posted to the
// send queue is sent, a FIN follows it, and the peer's FIN is waited for.
// Receives that found no message are flushed. Post nothing to the send queue
// meanwhile. On a connection that was dialled, and on which nothing has ever come
// from the peer, the FIN waits until the last message is 50 ms old, as Linux siw
// may not listen before. It returns why the connection ended: nil, or a *QPError. When ctx
// ends first its cause is returned and the connection goes on closing: Abort
// or Close ends it at once.
func (qp *QP) Disconnect(ctx context.Context) error {
	if !qp.started.Load() && !qp.machine.Dead() {
		return fmt.Errorf("disconnect QP %d: %w", qp.Number(), ErrNotConnected)
	}
	qp.machine.Disconnect()
	qp.ring()
	select {
	case <-qp.done:
		return qp.Err()
	case <-ctx.Done():
		return fmt.Errorf("disconnect QP %d: the peer has not closed its side yet: %w", qp.Number(), context.Cause(ctx))
	}
}

// Abort ends the connection with a reset. What was posted is flushed, soon.
func (qp *QP) Abort() {
	qp.machine.Abort()
	qp.ring()
}

// doom ends the QP because of err, connected or not. It does not block.
func (qp *QP) doom(err error) {
	qp.mu.Lock()
	switch qp.stage {
	case fresh:
		qp.stage = connected // nobody can connect it any more
		qp.mu.Unlock()
		qp.kill(err)
		return
	case connecting:
		if qp.doomed == nil {
			qp.doomed = err
		}
		qp.cancel(err)
	}
	overrun := errors.Is(err, ErrCQOverrun)
	if qp.cancel != nil && !overrun {
		qp.cancel(err) // of an attempt that takes the connection over
	}
	qp.mu.Unlock()
	if overrun {
		qp.machine.Overrun() // a reset could overtake the Terminate
	} else {
		qp.machine.AbortFor(err)
	}
	qp.ring()
}

// kill ends a QP that no stream runs: everything posted is flushed.
func (qp *QP) kill(err error) {
	qp.machine.Kill(err)
	qp.adapter.board.Deliver()
}

// Close destroys the QP. A connection that is still there is reset, an attempt
// to make one is given up, and what is posted is flushed: its completions stay
// in the CQs. When it returns nothing happens for this QP any more. It may be
// called twice, and after the adapter's Close.
func (qp *QP) Close() error {
	qp.mu.Lock()
	qp.closed = true
	settled := qp.settled
	qp.mu.Unlock()
	qp.partInWords()
	qp.doom(fmt.Errorf("the QP is being %w", ErrClosed))
	if settled != nil {
		<-settled
	}
	<-qp.done
	qp.gone.Do(func() { // every Close returns after it
		qp.delist()
		qp.adapter.log.Info("QP closed", "qp", qp.Number())
	})
	return nil
}

// terminateGrace is how long Close lets a connection that is ending with a
// Terminate take: a reset at once would often keep the peer from reading why.
const terminateGrace = time.Second

func (qp *QP) partInWords() {
	if qp.State() != Terminate {
		return
	}
	grace := time.NewTimer(terminateGrace)
	defer grace.Stop()
	select {
	case <-qp.done:
	case <-grace.C:
	}
}
