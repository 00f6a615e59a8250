package daemon

import (
	"encoding/binary"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// channel is a completion channel: a pipe into which the daemon writes the cookies of CQs.
type channel struct {
	client *client
	end    *os.File // the end that the daemon writes to
	raw    syscall.RawConn

	mu      sync.Mutex // guards the fields below; an engine takes it, so it is held briefly
	waiting []*cq      // CQs whose event finds no room in the pipe, in order
	users   int        // CQs
	closed  bool

	delivering bool // deliver runs, and no event may overtake those that wait
}

// pipeLen is the length of a pipe in octets. A client that does not read its events takes
// no more memory than that: what does not fit waits in the channel, once per CQ.
const pipeLen = 4096

// makeChannel is OpChannel.
func (c *client) makeChannel(m *proto.Message) (reply, error) {
	if err := c.account.take(ofChannels, 1); err != nil {
		return reply{}, err
	}
	h, mine, err := newChannel(c)
	if err != nil {
		c.account.give(ofChannels, 1)
		return reply{}, err
	}
	m.Handle = c.daemon.handle()
	if err := c.objects.add(m.Handle, h); err != nil {
		unix.Close(mine)
		h.close()
		return reply{}, err
	}
	return reply{fds: []int{mine}, after: func() { unix.Close(mine) }}, nil
}

// newChannel makes a channel, and returns the end for the client.
func newChannel(c *client) (*channel, int, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, 0, os.NewSyscallError("pipe2", err)
	}
	unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, pipeLen) // a larger pipe works as well
	if err := unix.SetNonblock(ends[1], true); err != nil {
		unix.Close(ends[0])
		unix.Close(ends[1])
		return nil, 0, os.NewSyscallError("fcntl", err)
	}
	h := &channel{client: c, end: os.NewFile(uintptr(ends[1]), "channel")}
	raw, err := h.end.SyscallConn()
	if err != nil {
		unix.Close(ends[0])
		h.end.Close()
		return nil, 0, err
	}
	h.raw = raw
	return h, ends[0], nil
}

func (h *channel) kind() proto.Kind { return proto.KindChannel }

func (h *channel) use(n int) {
	if h != nil {
		h.mu.Lock()
		h.users += n
		h.mu.Unlock()
	}
}

func (h *channel) close() error {
	h.mu.Lock()
	if h.users != 0 {
		h.mu.Unlock()
		return rdma.ErrInUse
	}
	h.closed = true
	h.mu.Unlock()
	h.end.Close()
	h.client.account.give(ofChannels, 1)
	return nil
}

// tell writes the event of a CQ. tell does not block: an engine calls it.
func (h *channel) tell(q *cq) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(q)
}

// add is tell for a caller that holds h.mu.
func (h *channel) add(q *cq) {
	switch {
	case q.ending:
		q.missed = true
		return
	case h.closed || q.waits:
		return
	case !h.delivering && h.try(q):
		return
	}
	q.waits = true
	h.waiting = append(h.waiting, q)
	if !h.delivering {
		h.delivering = true
		go h.deliver()
	}
}

// mute holds the events of a CQ back, or lets them go on.
func (h *channel) mute(q *cq, on bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	q.ending = on
	missed := q.missed && !on
	if missed {
		q.missed = false
	}
	h.mu.Unlock()
	if missed {
		h.tell(q)
	}
}

// try writes the event if the pipe has room. try reports false if it has none.
func (h *channel) try(q *cq) (done bool) {
	h.raw.Write(func(fd uintptr) bool {
		_, err := unix.Write(int(fd), q.event[:])
		done = err != unix.EAGAIN
		return true
	})
	return done
}

// deliver writes the events that wait, when there is room. A CQ leaves the list before its event
// is written: the client may read the event and arm the CQ again before Write returns, and the
// next completion then makes another event.
func (h *channel) deliver() {
	for {
		h.mu.Lock()
		if len(h.waiting) == 0 {
			h.delivering = false
			h.mu.Unlock()
			return
		}
		q := h.waiting[0]
		q.waits = false
		h.waiting = h.waiting[1:]
		h.mu.Unlock()
		h.end.Write(q.event[:]) // an error means that nobody reads, or that the channel is closed
	}
}

// eventOf returns the octets of the event of a CQ.
func eventOf(cookie uint64) (b [8]byte) {
	binary.NativeEndian.PutUint64(b[:], cookie)
	return b
}
