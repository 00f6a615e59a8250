package iser

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/rdma"
)

// Config is the configuration of a Channel.
type Config struct {
	Adapter *rdma.Adapter
	PD      *rdma.PD // of the QP; nil: one of its own

	// Receives is how many control PDUs of the peer can be there in the full feature phase.
	// iSER has no credits: a Send that finds no receive ends the connection. An initiator
	// needs one for each command and request, and some for PDUs that the target sends
	// unasked; a target its command window, and some for immediate requests.
	Receives int

	// Sends is how many control PDUs can be on their way that are longer than most.
	Sends int

	// Work is how many short control PDUs can be on their way.
	Work int

	// Data is how many work requests the owner has in the send queue besides.
	Data int
}

// Memory of a Channel.
const (
	// LoginLength is the longest data segment of a login in octets (RFC 7143 §13.12).
	LoginLength = 8192

	// loginReceives is how many receives a login has. There is one Login PDU at a time. The
	// other is for what the target sends directly behind the login.
	loginReceives = 2
	loginSends    = 2

	most  = 256                               // octets of additional header segments: the default of MaxAHSLength (RFC 7145 §6.7)
	bare  = pdu.ISERHeaderLen + pdu.HeaderLen // octets of the headers of every message
	front = bare + most                       // octets in front of a data segment at most

	// shortLength is the length of a message that needs no memory of the Channel.
	shortLength = 128
)

// The IDs of the Channel's work requests. Those of the owner are less than ownIDs.
const (
	ownIDs   = 1 << 62
	receives = 1 << 63
	sends    = 1 << 62
)

// Channel is the control channel of an iSER connection.
type Channel struct {
	cfg Config
	pd  *rdma.PD
	cq  *rdma.CQ
	qp  *rdma.QP

	memory []*rdma.MR
	in     []place // receives, by number
	out    []place // sends, by number
	free   []int   // sends that can be used

	wake chan struct{}
	news atomic.Pointer[func()]

	got         [16]rdma.Completion // of the last poll
	next, n     int                 // those of got that Poll has not returned
	short       [shortLength]byte
	wr          [2]rdma.SendWR // Ahead's, and Send's
	ahead       bool           // Ahead's is valid
	sge         [1]rdma.SGE
	invalidates bool

	fresh                  bool   // there are posts without a doorbell
	sendLength             int    // longest data segment of Start
	posted, signaled, done uint64 // numbers of the messages that were posted last, that were signaled last, and that have left
}

// place is memory for one message.
type place struct {
	mr        *rdma.MR
	off, size int
}

func (p place) bytes() []byte      { return p.mr.Bytes()[p.off : p.off+p.size] }
func (p place) sge(n int) rdma.SGE { return p.mr.SGE(p.off, n) }

// New makes a Channel that is not connected. Its receives for the login are posted. The
// caller must close it.
func New(c Config) (ch *Channel, err error) {
	ch = &Channel{cfg: c, pd: c.PD, wake: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("iser: %w", err), ch.Close())
			ch = nil
		}
	}()
	if ch.pd == nil {
		if ch.pd, err = c.Adapter.AllocPD(); err != nil {
			return ch, err
		}
	}
	recvDepth, sendDepth := loginReceives+c.Receives, loginSends+c.Sends+c.Work+c.Data
	if ch.cq, err = c.Adapter.CreateCQ(recvDepth+sendDepth, rdma.CQOptions{Handler: ch.rouse}); err != nil {
		return ch, err
	}
	ch.qp, err = ch.pd.CreateQP(rdma.QPConfig{SendCQ: ch.cq, RecvCQ: ch.cq, SendDepth: sendDepth, RecvDepth: recvDepth, MaxInline: shortLength})
	if err != nil {
		return ch, err
	}
	if err = ch.extend(loginReceives, LoginLength, loginSends, LoginLength); err != nil {
		return ch, err
	}
	ch.cq.Arm(false)
	return ch, nil
}

// extend adds memory, and posts the receives.
func (ch *Channel) extend(in, inLength, out, outLength int) error {
	from := len(ch.in)
	if err := ch.cut(&ch.in, in, receiveRoom(inLength)); err != nil {
		return err
	}
	for i := range ch.in[from:] {
		if err := ch.post(from + i); err != nil {
			return err
		}
	}
	from = len(ch.out)
	if err := ch.cut(&ch.out, out, front+pdu.Padded(outLength)); err != nil {
		return err
	}
	for i := range ch.out[from:] {
		ch.free = append(ch.free, from+i)
	}
	return nil
}

// receiveRoom returns how many octets a receive needs for PDUs with data segments of length
// octets. Of the PDUs that the owner of the Channel takes, only commands have additional
// header segments, and those with any have no data.
func receiveRoom(length int) int { return bare + max(most, pdu.Padded(length)) }

// channelHeap returns how many octets of the region heap a Channel takes that has started.
func channelHeap(in, inLength, out, outLength int) int {
	if out -= loginSends; out < 0 || outLength == 0 {
		out = 0
	}
	pages := func(octets int) int { return (octets + heap.PageSize - 1) &^ (heap.PageSize - 1) }
	return pages(loginReceives*receiveRoom(LoginLength)) + pages(loginSends*(front+LoginLength)) +
		pages(in*receiveRoom(inLength)) + pages(out*(front+pdu.Padded(outLength)))
}

// cut appends n places of size octets to a list.
func (ch *Channel) cut(list *[]place, n, size int) error {
	if n == 0 {
		return nil
	}
	mr, err := ch.pd.AllocMR(n*size, rdma.LocalWrite)
	if err != nil {
		return err
	}
	ch.memory = append(ch.memory, mr)
	for i := range n {
		*list = append(*list, place{mr, i * size, size})
	}
	return nil
}

// post makes receive i ready for the next message of the peer.
func (ch *Channel) post(i int) error {
	p := ch.in[i]
	_, err := ch.qp.PostRecv(rdma.RecvWR{ID: receives | uint64(i), SGL: []rdma.SGE{p.sge(p.size)}})
	return err
}

// Start makes the Channel ready for the full feature phase: Config.Receives PDUs with data
// segments of recvLength octets, and Config.Sends with data segments of sendLength octets. If
// sendLength is 0, long PDUs are rare, and those have the memory of the login.
// An initiator calls Start when its login is done. A target calls it before it sends the
// last Login Response, because the initiator then sends commands.
func (ch *Channel) Start(recvLength, sendLength int) error {
	ch.sendLength = sendLength
	out := max(0, ch.cfg.Sends-loginSends) // the memory of the login is free again
	if sendLength == 0 {
		out = 0
	}
	if err := ch.extend(ch.cfg.Receives, recvLength, out, sendLength); err != nil {
		return fmt.Errorf("iser: %w", err)
	}
	return nil
}

// Dial connects the Channel to a target. Our end sends first, the Login Request, so the
// connection needs no other first message.
func (ch *Channel) Dial(ctx context.Context, address string) error {
	if err := ch.qp.Dial(ctx, address, rdma.ConnParams{PrivateData: ownFlags(), ORD: rdma.NoReads, NoPeerToPeer: true}); err != nil {
		return err
	}
	ch.learn(ch.qp.Conn().PrivateData)
	return nil
}

// Accept connects the Channel to an initiator. It sets the private data of p.
func (ch *Channel) Accept(ctx context.Context, r *rdma.ConnRequest, p rdma.ConnParams) error {
	p.PrivateData = ownFlags()
	if err := r.Accept(ctx, ch.qp, p); err != nil {
		return err
	}
	ch.learn(r.PrivateData())
	return nil
}

// ownFlags returns the private data of this end: it uses zero-based virtual addresses, and
// takes Sends with Invalidate.
func ownFlags() []byte { return make([]byte, 4) }

// learn reads the private data of the peer. A peer without any is tgtd, which sends no
// Send with Invalidate.
func (ch *Channel) learn(private []byte) {
	ch.invalidates = len(private) != 0 && private[0]&pdu.ISERNoSendInvalidate == 0
}

// Invalidates reports whether the peer takes Sends with Invalidate.
func (ch *Channel) Invalidates() bool { return ch.invalidates }

// QP returns the QP, for the owner's own work requests, whose IDs are less than 2^62, and
// whose completions Poll returns.
func (ch *Channel) QP() *rdma.QP { return ch.qp }

// link returns the present connection of a QP whose posts the owner of the Channel rings.
func (ch *Channel) link() *adapter.Conn { return ch.qp.Link().(*adapter.Conn) }

// ring rings the doorbell for what was posted. If the goroutines of the program do the work
// of connections, the caller does it here.
func (ch *Channel) ring() {
	if ch.fresh {
		ch.fresh = false
		ch.link().Post(true)
	}
}

// postSend posts work requests.
func (ch *Channel) postSend(list []rdma.SendWR) error {
	ch.fresh = true
	_, err := ch.qp.PostSend(list...)
	return err
}

// PD returns the protection domain of the QP.
func (ch *Channel) PD() *rdma.PD { return ch.pd }

// Done is closed when the connection is gone.
func (ch *Channel) Done() <-chan struct{} { return ch.qp.Done() }

// News sets what runs when Poll may find something. It runs after steps of the connection,
// holds no lock, may call Poll and Send, and must not block.
func (ch *Channel) News(f func()) {
	ch.news.Store(&f)
	ch.rouse() // something may be there already
}

// rouse runs after a step with a completion.
func (ch *Channel) rouse() {
	select {
	case ch.wake <- struct{}{}:
	default:
	}
	if f := ch.news.Load(); f != nil {
		(*f)()
	}
}

// Close resets the connection, and frees the memory. No News runs any more. Close may be
// called twice.
func (ch *Channel) Close() error {
	var errs []error
	if ch.qp != nil {
		errs = append(errs, ch.qp.Close())
	}
	if ch.cq != nil {
		errs = append(errs, ch.cq.Close())
	}
	for _, mr := range ch.memory {
		errs = append(errs, mr.Close())
	}
	ch.memory = nil
	if ch.cfg.PD == nil && ch.pd != nil {
		errs = append(errs, ch.pd.Close())
	}
	return errors.Join(errs...)
}
