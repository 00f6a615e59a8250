package handoff

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/socket"
	"github.com/stag-rdma/stag/offload/tcp"
)

// Placeholder keeps a connection's 4-tuple in the kernel while an engine runs the
// connection. A Placeholder is an ESTABLISHED socket with empty queues and no timers,
// always in repair mode. Segments of the tuple reach it only while the XDP program is
// attached but does not run, as on a veth interface that is just coming up. The
// placeholder drops these segments, because an answer could acknowledge octets that the
// engine has not received. A Placeholder is safe for concurrent use.
type Placeholder struct {
	tuple         Tuple
	local, remote unix.Sockaddr // addresses in the socket's own family
	ip            IP
	saved         saved // settings of the program, for GiveBack
	mss           int   // argument of Socket.Limit

	mu    sync.Mutex
	fd    int                  // -1 when closed
	drops uint32               // segments dropped before the placeholder was made
	fail  func(GiveStep) error // argument of Inject
}

// Tuple returns the connection's 4-tuple and interface.
func (p *Placeholder) Tuple() Tuple { return p.tuple }

// IP returns the values that the kernel has put into IP headers until now.
func (p *Placeholder) IP() IP { return p.ip }

// Err returns nil as long as the kernel has received no segment of the tuple and the
// placeholder is in place.
func (p *Placeholder) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd < 0 {
		return ErrClosed
	}
	info, err := getTCPInfo(p.fd)
	switch {
	case err != nil:
		return fmt.Errorf("read TCP_INFO of the placeholder: %w", err)
	case info.State != established:
		return fmt.Errorf("the placeholder of %v to %v is in %s", p.tuple.Local, p.tuple.Remote, stateName(info.State))
	}
	drops, err := getDrops(p.fd)
	switch {
	case err != nil:
		return fmt.Errorf("read SO_MEMINFO of the placeholder: %w", err)
	case drops != p.drops:
		return fmt.Errorf("%d segments of %v to %v have reached the kernel", drops-p.drops, p.tuple.Remote, p.tuple.Local)
	}
	return nil
}

// Strays returns how many segments of the tuple the placeholder has received and
// dropped. After Close it returns ErrClosed.
func (p *Placeholder) Strays() (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd < 0 {
		return 0, ErrClosed
	}
	drops, err := getDrops(p.fd)
	if err != nil {
		return 0, fmt.Errorf("read SO_MEMINFO of the placeholder: %w", err)
	}
	return drops - p.drops, nil
}

// Close releases the 4-tuple without sending anything. Close may be called twice.
func (p *Placeholder) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd < 0 {
		return nil
	}
	fd := p.fd
	p.fd = -1
	return dissolve(fd)
}

// dissolve disconnects a socket in repair mode and closes the descriptor. The kernel
// sends nothing. The connection ends even if other descriptors of the socket are open.
func dissolve(fd int) error {
	return errors.Join(disconnect(fd), unix.Close(fd))
}

// disconnect puts the socket into CLOSED. In repair mode the kernel sends nothing,
// empties both queues and stops all timers. disconnect clears the error that the kernel
// leaves on the socket.
func disconnect(fd int) error {
	if err := socket.Disconnect(fd); err != nil {
		return fmt.Errorf("disconnect the socket: %w", err)
	}
	_, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	return err
}

// placeholder does step 6: it turns the socket into a Placeholder. The Socket has no
// descriptor afterwards.
func (s *Socket) placeholder(state tcp.State) (*Placeholder, error) {
	fd := s.fd
	s.fd = -1
	p := &Placeholder{tuple: s.tuple, local: s.local, remote: s.remote, ip: s.ip, saved: s.saved, mss: s.mss, fd: fd}
	err := s.rebuild(fd, state)
	if err == nil {
		p.drops, err = s.verify(fd, state)
	}
	if err != nil {
		return nil, errors.Join(err, dissolve(fd))
	}
	return p, nil
}

// rebuild disconnects the socket, which discards the queues. rebuild then connects the
// socket again in repair mode. The kernel sends nothing in either case.
func (s *Socket) rebuild(fd int, state tcp.State) error {
	if err := disconnect(fd); err != nil {
		return err
	}
	if err := s.inject(StepReplace); err != nil {
		return err
	}
	if err := refuseAll(fd); err != nil {
		return fmt.Errorf("attach a socket filter: %w", err)
	}
	if err := s.bind(fd); err != nil {
		return fmt.Errorf("bind to %v again: %w", s.tuple.Local, err)
	}
	end := state.SndUna.Add(seq.Len(len(state.Queue)))
	for _, q := range []struct {
		queue int
		seq   seq.Num
	}{{receiveQueue, state.RcvNxt}, {sendQueue, end}} {
		err := unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_REPAIR_QUEUE, q.queue)
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_QUEUE_SEQ, int(int32(q.seq)))
		}
		if err != nil {
			return fmt.Errorf("set the sequence of queue %d: %w", q.queue, err)
		}
	}
	if err := unix.Connect(fd, s.remote); err != nil {
		return fmt.Errorf("connect to %v again: %w", s.tuple.Remote, err)
	}
	return nil
}

// bind gives the socket its local address back. EINVAL means that the application bound
// the socket to its port before the first connect, so that the socket has kept the
// port. connect then chooses the address as before, and verify checks it. getsockname
// does not help, because it also shows ports that the socket no longer has.
func (s *Socket) bind(fd int) error {
	err := unix.Bind(fd, s.local)
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// refuseAll makes the kernel drop every segment for the socket without an answer. It
// attaches a filter whose only instruction returns 0, the number of octets to keep.
func refuseAll(fd int) error {
	none := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(none)), Filter: &none[0]})
}

// verify checks that the socket is a placeholder. verify returns how many segments the
// socket has dropped. With no queue selected, the kernel refuses a write to the socket.
func (s *Socket) verify(fd int, state tcp.State) (drops uint32, err error) {
	info, err := getTCPInfo(fd)
	if err != nil {
		return 0, fmt.Errorf("read TCP_INFO: %w", err)
	}
	if info.State != established {
		return 0, fmt.Errorf("the placeholder is in %s", stateName(info.State))
	}
	for _, queue := range []uint{unix.SIOCINQ, unix.SIOCOUTQ} {
		if n, err := unix.IoctlGetInt(fd, queue); err != nil || n != 0 {
			return 0, errors.Join(fmt.Errorf("%d octets are in a queue of the placeholder", n), err)
		}
	}
	again := Socket{fd: fd}
	if err := again.readTuple(); err != nil {
		return 0, err
	}
	if again.tuple != s.tuple {
		return 0, fmt.Errorf("the placeholder connects %v to %v", again.tuple.Local, again.tuple.Remote)
	}
	next, err := again.queueSeq(receiveQueue)
	if err != nil {
		return 0, err
	}
	if next != state.RcvNxt {
		return 0, fmt.Errorf("%w: the placeholder has received %d octets", ErrMoving, state.RcvNxt.Until(next))
	}
	drops, err = getDrops(fd)
	return drops, errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_REPAIR_QUEUE, noQueue))
}
