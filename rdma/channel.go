package rdma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// CompChannel is a completion channel (ibv_comp_channel): one place where a program waits
// for many CQs. A CQ that the program has armed (CQ.Arm) puts one event into its channel
// at the next completion of the kind that Arm names. The event names the CQ. The program
// polls that CQ, arms it again, and polls it once more, because a completion from before
// Arm causes no event.
//
// There are three ways to wait: Next, the Go channel of Notify for a select, and the file
// descriptor of FD for epoll. An event goes to one of them, whichever takes it first.
//
// A CQ has at most one event in the channel. If the CQ gets another one before the program
// takes the first, the two are one. The program need not acknowledge events, as
// ibv_ack_cq_events does: a *CQ stays valid after its Close, and Close removes the CQ's
// event from the channel.
//
// A CompChannel is safe for concurrent use. It costs nothing until a CQ of it is armed.
type CompChannel struct {
	adapter *Adapter
	notify  chan struct{}
	over    chan struct{} // channel that is closed when the CompChannel is

	mu     sync.Mutex   // guards the fields below; held briefly, also by engines after a step
	cqs    map[*CQ]bool // the CQs of the channel; true: the CQ is in events
	events []*CQ        // oldest first
	fd     int          // an eventfd, which is readable while there are events; -1: not made yet
	closed bool
}

// CQOptions are the less common properties of a CQ.
type CQOptions struct {
	Channel *CompChannel // channel for the events of the CQ; nil means none
	Context any          // value of the program, which CQ.Context returns (cq_context of libibverbs)

	// Handler, if set, runs when an armed CQ gets a completion of the kind that Arm names
	// (comp_handler of the Linux kernel's ib_create_cq). It runs on the goroutine that
	// made the step, with no lock held. It may poll, arm and post, and must not block. A CQ
	// with a Handler leaves the connections' work to the adapter's goroutines, whatever
	// Config.Progress says.
	Handler func()

	// Memory is memory for the completions that another process maps too. nil means memory
	// of the adapter. It must have CQRingLen octets for the depth of the CQ, be aligned to 64
	// octets, and stay mapped until Close has returned. The other process polls the CQ and
	// arms it, as the comments of Rings say: Poll of this process finds nothing, Wait returns
	// ErrMapped, and Resize fails. Handler runs when the CQ was armed in the memory. The
	// connections' work is done by the adapter's goroutines.
	Memory []byte
}

// CreateCompChannel makes a completion channel. A CQ uses the channel that CreateCQ gets
// in CQOptions.Channel. The caller must close the channel. The adapter's Close also closes it.
func (a *Adapter) CreateCompChannel() (*CompChannel, error) {
	done, err := a.use()
	if err != nil {
		return nil, fmt.Errorf("create completion channel: %w", err)
	}
	defer done()
	ch := &CompChannel{
		adapter: a, notify: make(chan struct{}, 1), over: make(chan struct{}), cqs: map[*CQ]bool{}, fd: -1,
	}
	if !a.hold(channelCloser{ch}) {
		return nil, fmt.Errorf("create completion channel: the adapter is %w", ErrClosed)
	}
	return ch, nil
}

// channelCloser is a CompChannel that the adapter closes with all its CQs.
type channelCloser struct{ *CompChannel }

// Close implements io.Closer.
func (l channelCloser) Close() error {
	l.end()
	return nil
}

// FD returns a file descriptor that is readable while an event waits, for use with poll
// and epoll. The first call makes the descriptor. The program must not read, write or
// close it. TryNext takes the event, and the descriptor is no longer readable when the
// last event has been taken. The channel's Close closes the descriptor.
func (ch *CompChannel) FD() (int, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return -1, fmt.Errorf("descriptor of the completion channel: the channel is %w", ErrClosed)
	}
	if ch.fd < 0 {
		fd, err := unix.Eventfd(uint(min(len(ch.events), 1)), unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return -1, fmt.Errorf("descriptor of the completion channel: eventfd: %w", err)
		}
		ch.fd = fd
	}
	return ch.fd, nil
}

// Notify returns a Go channel that gets a message when an event comes, for use in a
// select. The program must then call TryNext until it returns nil. It may return nil at
// once, because a message may be left over.
func (ch *CompChannel) Notify() <-chan struct{} { return ch.notify }

// TryNext removes the oldest event and returns its CQ, or nil if no event waits
// (ibv_get_cq_event with O_NONBLOCK).
func (ch *CompChannel) TryNext() *CQ {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if len(ch.events) == 0 {
		return nil
	}
	c := ch.events[0]
	ch.events[0] = nil // the array must not keep the CQ alive
	ch.events = ch.events[1:]
	ch.cqs[c] = false
	if len(ch.events) == 0 {
		ch.lower()
	} else {
		ch.poke() // for another goroutine that waits
	}
	return c
}

// Next removes the oldest event and returns its CQ (ibv_get_cq_event). If no event waits,
// Next sleeps until one comes. Several goroutines may call Next, and each event goes to
// one of them. The error is the cause of ctx's end, or ErrClosed. Next returns an event
// that waits even if ctx has ended.
func (ch *CompChannel) Next(ctx context.Context) (*CQ, error) {
	for {
		if c := ch.TryNext(); c != nil {
			return c, nil
		}
		select {
		case <-ch.over:
			return nil, fmt.Errorf("wait for an event: the completion channel is %w", ErrClosed)
		default:
		}
		select {
		case <-ch.notify:
		case <-ch.over:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Close closes the channel and its descriptor. Every Next returns. Close returns ErrInUse
// while CQs use the channel. Close may be called twice, and after the adapter's Close.
func (ch *CompChannel) Close() error {
	ch.mu.Lock()
	n := len(ch.cqs)
	if ch.closed {
		n = 0
	}
	ch.mu.Unlock()
	if n != 0 {
		return fmt.Errorf("close completion channel: %w by %d CQs: close them first", ErrInUse, n)
	}
	ch.end()
	ch.adapter.letGo(channelCloser{ch})
	return nil
}

// end closes the channel, whether CQs use it or not.
func (ch *CompChannel) end() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return
	}
	ch.closed, ch.events = true, nil
	close(ch.over)
	if ch.fd >= 0 {
		unix.Close(ch.fd)
		ch.fd = -1
	}
}

// join adds a CQ to the channel.
func (ch *CompChannel) join(c *CQ) error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	switch {
	case ch.adapter != c.adapter:
		return errors.New("the completion channel is another adapter's")
	case ch.closed:
		return fmt.Errorf("the completion channel is %w", ErrClosed)
	}
	ch.cqs[c] = false
	return nil
}

// leave removes a CQ and its event.
func (ch *CompChannel) leave(c *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.cqs[c] {
		for i := range ch.events {
			if ch.events[i] == c {
				ch.events = append(ch.events[:i], ch.events[i+1:]...)
				break
			}
		}
		if len(ch.events) == 0 {
			ch.lower()
		}
	}
	delete(ch.cqs, c)
}

// add adds an event of a CQ, unless there is one. add does not block.
func (ch *CompChannel) add(c *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if waits, member := ch.cqs[c]; !member || waits || ch.closed {
		return
	}
	ch.cqs[c] = true
	ch.events = append(ch.events, c)
	if len(ch.events) == 1 {
		ch.raise()
	}
	ch.poke()
}

func (ch *CompChannel) poke() {
	select {
	case ch.notify <- struct{}{}:
	default:
	}
}

// raise makes the descriptor readable, if there is one. lower makes it unreadable. An
// eventfd of this use accepts both at any time.
func (ch *CompChannel) raise() {
	if ch.fd >= 0 {
		_, _ = unix.Write(ch.fd, binary.NativeEndian.AppendUint64(nil, 1))
	}
}

func (ch *CompChannel) lower() {
	if ch.fd >= 0 {
		var count [8]byte
		_, _ = unix.Read(ch.fd, count[:])
	}
}
