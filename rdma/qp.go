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
	"github.com/stag-rdma/stag/tpt"
)

// QPConfig is the configuration of a QP. SendCQ and RecvCQ must be set. A zero in
// another field means its default.
type QPConfig struct {
	SendCQ, RecvCQ *CQ // CQs of the two queues; they may be the same CQ

	SendDepth int // work requests that the send queue can hold; 0 means 128
	RecvDepth int // work requests that the receive queue can hold; 0 means 128; must be 0 with SRQ
	MaxSGE    int // elements of a work request's list; 0 means 4
	MaxInline int // largest length of inline data in octets; 0 means 64, NoInline means none

	// SQSigAll gives every request of the send queue the flag Signaled (sq_sig_all of
	// libibverbs). Each request then takes a place in SendCQ.
	SQSigAll bool

	// RegMR says that the send queue takes registrations (WRRegMR). Without RegMR a post of
	// a registration is refused (ErrBadWR).
	RegMR bool

	// Reactive says what happens when the table refuses a request of the send queue for a
	// region or a window (TableErr). If Reactive is false, the connection ends with a
	// Terminate, and all requests are flushed. If Reactive is true, the send queue is drained
	// until QP.Resume: the requests before the refused one complete, those behind it are
	// flushed, and everything else of the connection goes on.
	Reactive bool

	// Context is a value of the program (qp_context of libibverbs). CQ.QPContext returns
	// it for each completion of the QP. nil means none.
	Context any

	// Rate limits the QP's transmission, in octets of payload per second. 0 means no limit.
	// In any time t at most Rate*(t+2ms) octets and one segment leave. The payload of Sends,
	// Writes, and answers to the peer's Reads counts. Headers, retransmissions, Read
	// Requests, atomic operations and Immediate Data do not count. A request that waits
	// holds back those behind it. See also WRDelay. Rate is at most 10^12. QP.SetRate
	// changes it.
	Rate uint64

	// SRQ is the shared receive queue from which the QP takes its receives. nil means that
	// the QP has a receive queue of its own. With an SRQ, MaxSGE concerns sends only.
	SRQ *SRQ

	// Rings is memory for the queues of the QP that another process maps too. nil means
	// memory of the adapter. See Rings.
	Rings *Rings

	// Hold is how long a message of the peer may wait for a receive. 0 means that a message
	// that finds no receive ends the connection, as iWARP demands. HoldForever means no limit.
	//
	// While a message waits, the QP processes nothing of the peer. The TCP window closes when
	// the buffers are full, and the peer's Sends wait, as with RNR retries of InfiniBand. The
	// peer can be any implementation of iWARP. When the time is over, the connection ends as
	// without Hold. After Disconnect a message waits for at most a second. See QP.Holding.
	//
	// The peer's answers to Reads and atomic operations wait behind the message too. A program
	// that posts receives only after such an answer stops until the time is over.
	Hold time.Duration

	// Client is the number of the client of the program that the QP works for, if the program
	// serves several, as a daemon does. The clients share the transmission of each port
	// equally, however many QPs each has. 0 means the program itself, which counts as one
	// client. Over the kernel's TCP, Client has no effect.
	Client uint32

	// ClientFrames is how many transmit frames of a queue all QPs of Client may hold at a time.
	// A frame is held until the peer has acknowledged its octets. A QP that may hold no more
	// waits. All QPs of a client must have the same ClientFrames. 0 means no limit but this one: a
	// client may hold two frames for each frame that is free, so that clients whose peers do
	// not read leave room for others. Over the kernel's TCP, ClientFrames has no effect.
	ClientFrames int

	// KeepReceives leaves receives posted when the connection ends in good order. They are
	// flushed by Fail and by Close. QPs of InfiniBand do so: they do not hear of a peer that
	// destroys its QP, and a program that has just got its last message does not expect that
	// its receives are flushed.
	KeepReceives bool

	// AsyncNotify asks for the events CommEst and SQDrained of this QP (EN_SQD_ASYNC_NOTIFY
	// of libibverbs).
	AsyncNotify bool
}

// NoInline is a value of QPConfig.MaxInline. NoInline means that the QP takes no inline
// data.
const NoInline = -1

// Defaults of QPConfig and SRQConfig.
const (
	presetDepth = 128
	presetSGE   = 4
)

// fill sets the defaults of c, or returns one error with every invalid field in it.
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
		{"MaxSGE", &c.MaxSGE, presetSGE, maxSGE},
		{"MaxInline", &c.MaxInline, 64, maxInline},
	} {
		if f.name == "RecvDepth" && c.SRQ != nil {
			if c.RecvDepth != 0 {
				errs = append(errs, errors.New("RecvDepth and SRQ are set: choose one"))
			}
			continue
		}
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
	if c.ClientFrames < 0 || c.ClientFrames != 0 && c.Client == 0 {
		errs = append(errs, fmt.Errorf("ClientFrames is %d and Client is %d: choose 0, or a number for a Client", c.ClientFrames, c.Client))
	}
	if err := checkRate(c.Rate); err != nil {
		errs = append(errs, err)
	}
	if c.Hold < 0 && c.Hold != HoldForever {
		errs = append(errs, fmt.Errorf("a Hold of %v: choose 0 or more, or HoldForever", c.Hold))
	}
	if len(errs) == 0 && c.Rings != nil {
		errs = append(errs, c.checkRings())
	}
	return c, errors.Join(errs...)
}

// QP is a queue pair: one end of a reliable connection. A QP is connected once and then
// never again. A QP is safe for concurrent use. If several goroutines post, the calls
// take the queue's lock one after the other. The requests of one call stay together.
type QP struct {
	// CreateQP sets these fields, and they never change.
	adapter *Adapter
	pd      *PD
	machine *rdmap.QP
	distant *distantQP // the QP in the daemon; nil: there is no daemon
	cfg     QPConfig
	denied  tpt.Rights    // rights of the peer that the machine denies from the start
	done    chan struct{} // channel that is closed when the connection is gone

	conn  atomic.Pointer[adapter.Conn] // the connection; nil until the QP has taken it over
	over  sync.Once                    // closes done
	gone  sync.Once                    // removes the QP from its CQs, PD and adapter
	fatal atomic.Uint32                // state of the QPFatal event: untold, telling or told
	last  atomic.Uint32                // state of the QPLastWQEReached event
	heard atomic.Uint32                // state of the CommEst event
	empty atomic.Uint32                // state of the SQDrained event

	started atomic.Bool // the QP has, or had, a connection
	silent  atomic.Bool // posts to the send queue ring no doorbell: see Link

	// A post holds the lock of its queue. No engine takes these locks.
	sending, receiving sync.Mutex

	flushing sync.Mutex // lock that is held while requests in Rings of the dead QP are flushed

	driving  sync.Mutex     // guards runner and detached; held briefly
	runner   adapter.Runner // runner that the CQs run for this QP; nil: none
	detached bool           // the CQs run no runner for this QP any more

	mu      sync.Mutex // guards the fields below; held briefly
	stage   stage
	cancel  context.CancelCauseFunc // function that ends the current attempt to connect; nil: no attempt runs
	settled chan struct{}           // channel that is closed when the current attempt is over
	agreed  Conn
	doomed  error // reason why the attempt must fail, in stage connecting
	closed  bool
}

// stage is the QP's progress towards a connection.
type stage uint8

const (
	fresh      stage = iota
	connecting       // Dial or Accept is running
	connected        // the QP has or had a connection, or can get none any more
)

// Conn contains the values that the two ends of a connection have agreed on.
type Conn struct {
	Local, Remote netip.AddrPort
	Initiator     bool       // this end dialled
	Revision      int        // revision of MPA
	CRC           bool       // FPDUs have a CRC that is checked, in both directions
	SendMarkers   bool       // the peer asked for Markers
	RecvMarkers   bool       // this end asked for Markers
	IRD           int        // RDMA Reads and atomic operations of the peer that this end serves at a time
	ORD           int        // RDMA Reads and atomic operations of this end that are outstanding at a time
	Depths        bool       // the peer has sent its read depths, PeerIRD and PeerORD
	PeerIRD       int        // Reads of this end that the peer serves at a time, as sent (RFC 6581 §9.1); 16383 leaves it to the applications
	PeerORD       int        // RDMA Reads that the peer wants outstanding at a time, as the peer sent it
	PrivateData   []byte     // private data in the peer's Request or Reply
	Extensions    Extensions // extensions of stag that both ends want
	RFC7306       bool       // atomic operations and Immediate Data can be posted: agreed on, or ConnParams.PeerRFC7306
	Path          string     // the port and its mode, or "kernel port"
}

// CreateQP makes a QP that is not connected yet. Post the first receives before
// connecting it, because a Send that finds no receive ends the connection (but see
// QPConfig.Hold). Post them to cfg.SRQ if it is set. Errors: ErrClosed, ErrCQOverrun, and one that names every field of
// cfg to change.
func (pd *PD) CreateQP(cfg QPConfig) (*QP, error) {
	done, err := pd.adapter.use()
	if err != nil {
		return nil, fmt.Errorf("create QP: %w", err)
	}
	defer done()
	cfg, err = cfg.fill()
	if err != nil {
		return nil, fmt.Errorf("create QP: %w", err)
	}
	if pd.adapter.through != nil {
		qp, err := pd.createDistantQP(cfg)
		if err != nil {
			return nil, fmt.Errorf("create QP: %w", err)
		}
		return qp, nil
	}
	send, recv, err := cfg.layRings()
	if err != nil {
		return nil, fmt.Errorf("create QP: %w", err)
	}
	number, err := pd.adapter.reserveNumber()
	if err != nil {
		return nil, fmt.Errorf("create QP: %w", err)
	}
	qp := &QP{adapter: pd.adapter, pd: pd, cfg: cfg, done: make(chan struct{})}
	machine := qp.config(number)
	machine.SendRing, machine.RecvRing = send, recv
	qp.machine = rdmap.New(machine)
	qp.machine.News.Fire = qp.news
	if pd.adapter.device.Shares() {
		qp.machine.Wants.Fire = qp.wants
	}
	if err := qp.enlist(); err != nil {
		pd.adapter.freeNumber(number)
		return nil, fmt.Errorf("create QP: %w", err)
	}
	pd.adapter.log.Info("QP created", "qp", qp.Number())
	return qp, nil
}

// Number returns the QP's number, which its completions carry.
func (qp *QP) Number() uint32 { return qp.machine.Number() }

// State returns the QP's current state.
func (qp *QP) State() State { return qp.machine.State() }

// Config returns the QP's configuration with the defaults filled in.
func (qp *QP) Config() QPConfig { return qp.cfg }

// Conn returns the values that the two ends agreed on. Conn returns the zero Conn before
// the QP has been connected.
func (qp *QP) Conn() Conn {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	return qp.agreed
}

// Done returns a channel that is closed when the connection is gone. All posted requests
// have completed then, and no memory is accessed for this QP any more.
func (qp *QP) Done() <-chan struct{} { return qp.done }

// Err returns the reason why the connection ended, or is ending, with an error: a
// *QPError. Err returns nil before that, and after a close in good order.
func (qp *QP) Err() error {
	if c := qp.machine.Cause(); c != (rdmap.Cause{}) {
		return &QPError{QP: qp.Number(), Cause: c}
	}
	return nil
}

// The state of the events QPFatal and QPLastWQEReached.
const (
	untold uint32 = iota
	telling
	told
)

// news runs after a step in which the state has changed. news does not block. Several
// goroutines may run news at once. Only one of them reports each event. news closes done
// only after these reports. Adapter.Close waits for done and then for everything that has begun,
// and so also for the reports.
func (qp *QP) news() {
	if qp.cfg.AsyncNotify {
		qp.tellStages()
	}
	err := qp.Err()
	asked := errors.Is(err, ErrClosed) || errors.Is(err, stream.ErrAborted) || errors.Is(err, ErrHandedOver)
	if err != nil && !asked && qp.fatal.CompareAndSwap(untold, telling) {
		// The goroutine that runs the step may hold locks that the program's log handler needs.
		qp.adapter.device.Go(func() {
			qp.adapter.fatal.log(qp.adapter.log, slog.LevelWarn, "QP fatal", "qp", qp.Number(), "err", err)
		})
		qp.adapter.events.add(Event{Type: QPFatal, QP: qp, Err: err})
		qp.fatal.Store(told)
	}
	if qp.machine.Sated() {
		qp.tell(&qp.last, QPLastWQEReached)
	}
	// If another goroutine is still reporting an event, that goroutine closes done after the
	// report.
	if qp.machine.Dead() && !qp.reporting() {
		if qp.cfg.Rings != nil {
			qp.flushLate()
		}
		qp.over.Do(func() { close(qp.done) })
	}
}

// wants runs after a step in which a request of the peer has come to memory of another
// process. The connection continues when there is an answer.
func (qp *QP) wants() {
	qp.adapter.device.Resolve(qp.machine.Wanted(), func(there bool) {
		qp.machine.Resolved(there)
		qp.ring()
	})
}

// ring wakes the runner of the connection, if the QP has a connection.
func (qp *QP) ring() {
	if c := qp.conn.Load(); c != nil {
		c.Wake()
	}
}

// Disconnect ends the connection in good order. Disconnect sends all requests of the
// send queue and then a FIN, and waits for the peer's FIN. Receives that found no
// message are flushed. Do not post to the send queue during Disconnect.
//
// If this end dialled and the peer has never sent anything, the FIN waits until the last
// message is 50 ms old, because Linux siw may not listen before.
//
// Disconnect returns the reason why the connection ended: nil, or a *QPError. If ctx
// ends first, Disconnect returns the cause of ctx's end, and the connection continues to
// close. Abort or Close ends it at once.
func (qp *QP) Disconnect(ctx context.Context) error {
	if !qp.started.Load() && !qp.machine.Dead() {
		return fmt.Errorf("disconnect QP %d: %w", qp.Number(), ErrNotConnected)
	}
	if qp.distant != nil {
		return qp.disconnectDistant(ctx)
	}
	done := qp.adapter.still()
	qp.machine.Disconnect()
	qp.ring()
	done()
	select {
	case <-qp.done:
		return qp.Err()
	case <-ctx.Done():
		return fmt.Errorf("disconnect QP %d: the peer has not closed its side yet: %w", qp.Number(), context.Cause(ctx))
	}
}

// Abort ends the connection with a reset. Abort does not wait. Posted requests complete as
// Flushed soon after, and Done is closed. The adapter owns their memory until then.
func (qp *QP) Abort() {
	defer qp.adapter.still()()
	if qp.distant != nil {
		qp.failDistant()
		return
	}
	qp.machine.Abort()
	qp.ring()
}

// doom ends the QP because of err, in every stage. doom does not block.
func (qp *QP) doom(err error) {
	qp.mu.Lock()
	switch qp.stage {
	case fresh:
		qp.stage = connected // the QP cannot be connected any more
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
		qp.cancel(err) // start has run; the cancellation ends the take-over
	}
	qp.mu.Unlock()
	if overrun {
		qp.machine.Overrun() // no reset, because it could overtake the Terminate
	} else {
		qp.machine.AbortFor(err)
	}
	qp.ring()
}

// kill ends a QP that has no stream. kill flushes all posted requests.
func (qp *QP) kill(err error) {
	if qp.distant != nil {
		qp.endDistant(err)
		return
	}
	qp.machine.Kill(err)
	qp.adapter.board.Deliver()
}

// Close destroys the QP. Close resets a connection that still exists, gives up an
// attempt to connect, and flushes posted requests. The completions stay in the CQs, with the
// status Flushed. The memory of all requests is free when Close returns. When
// Close returns, no goroutine works for this QP any more. Close returns
// ErrInUse while windows of type 2B are bound to the QP. Close may be called twice, and
// after the adapter's Close.
func (qp *QP) Close() error {
	defer qp.adapter.still()()
	if err := qp.keptBy(); err != nil {
		return err
	}
	qp.mu.Lock()
	qp.closed = true
	settled := qp.settled
	qp.mu.Unlock()
	qp.partInWords()
	qp.doom(fmt.Errorf("the QP is being %w", ErrClosed))
	if settled != nil {
		<-settled
	}
	if qp.distant != nil {
		qp.closeDistant()
	}
	<-qp.done
	qp.gone.Do(func() { // a concurrent Close returns only after this function has returned
		qp.unbindWindows()
		qp.flushKept()
		qp.closeRings()
		if qp.distant != nil {
			qp.unmapRings()
		}
		qp.delist()
		qp.adapter.log.Info("QP closed", "qp", qp.Number())
	})
	return nil
}

// terminateGrace is how long Close waits for a connection that is ending with a
// Terminate. An immediate reset would often keep the peer from reading the Terminate.
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
