package handoff

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/tcp"
)

// Numbers of the kernel for the queues of a socket in repair mode.
const (
	noQueue = iota
	receiveQueue
	sendQueue
)

// settle is how long the kernel must receive no segment before the state counts as
// stable. Receive offload and packet steering between CPUs can hold a segment beyond
// the grace period. maxRounds limits the number of waits.
const (
	settle    = time.Millisecond
	maxRounds = 50
)

// peekSlack is room in octets for the acknowledged part of the oldest buffer in the
// send queue. The kernel keeps that part, because it does not trim a buffer of one
// segment.
const peekSlack = 64 << 10

// read fills a state from a socket in repair mode whose segments are parked. read
// leaves the send queue selected, so that the kernel transmits no unsent octets and
// SND.NXT does not change.
func (s *Socket) read() (tcp.State, error) {
	for range maxRounds {
		before, err := getTCPInfo(s.fd)
		if err != nil {
			return tcp.State{}, fmt.Errorf("read TCP_INFO: %w", err)
		}
		st, err := s.readOnce(before)
		if err != nil {
			if moved, failed := s.moved(before); failed != nil || !moved {
				return tcp.State{}, err
			}
			s.settle() // two values were read of two states
			continue
		}
		s.settle()
		still, err := s.still(&st, before)
		if err != nil || still {
			return st, err
		}
	}
	return tcp.State{}, ErrMoving
}

// readOnce fills a state. The state is consistent if the kernel has received no segment
// meanwhile.
func (s *Socket) readOnce(before tcpInfo) (st tcp.State, err error) {
	for _, f := range []func(*tcp.State) error{
		s.readReceived, s.readSent, s.readWindows, s.readClock, s.readSettings, s.readIP,
	} {
		if err := f(&st); err != nil {
			return tcp.State{}, err
		}
	}
	return st, s.readInfo(&st, before)
}

// moved reports whether the kernel has received a segment since the caller read the tcpInfo
// before.
func (s *Socket) moved(before tcpInfo) (bool, error) {
	now, err := getTCPInfo(s.fd)
	return now.Segs_in != before.Segs_in, err
}

// settle waits as long as a held segment can take to arrive.
func (s *Socket) settle() {
	if s.settling != nil {
		s.settling()
		return
	}
	time.Sleep(settle)
}

// still reports whether the kernel has received no segment after the caller read the
// tcpInfo before.
func (s *Socket) still(st *tcp.State, before tcpInfo) (bool, error) {
	after, err := getTCPInfo(s.fd)
	if err != nil {
		return false, fmt.Errorf("read TCP_INFO: %w", err)
	}
	if after.State != established {
		return false, fmt.Errorf("%w any more: it is in %s", ErrNotEstablished, stateName(after.State))
	}
	end, err := unix.GetsockoptInt(s.fd, unix.SOL_TCP, unix.TCP_QUEUE_SEQ)
	if err != nil {
		return false, fmt.Errorf("read the send sequence: %w", err)
	}
	if seq.Num(end) != st.SndUna.Add(seq.Len(len(st.Queue))) {
		return false, ErrWritten
	}
	return after.Segs_in == before.Segs_in, nil
}

// readReceived reads RCV.NXT and the octets that the application has not read.
func (s *Socket) readReceived(st *tcp.State) error {
	next, err := s.queueSeq(receiveQueue)
	if err != nil {
		return err
	}
	st.RcvNxt = next
	size, err := s.unread()
	if err != nil {
		return err
	}
	// One octet more than expected shows whether there are more.
	st.Unread, err = s.peek(size + 1)
	if err != nil {
		return fmt.Errorf("read the receive queue: %w", err)
	}
	if len(st.Unread) > size {
		return fmt.Errorf("%w: the receive queue grew", ErrMoving)
	}
	if len(st.Unread) < size {
		return fmt.Errorf("the receive queue holds %d octets, but only %d can be read: switch SO_PEEK_OFF off", size, len(st.Unread))
	}
	return nil
}

// unread returns how many octets the receive queue contains. SIOCINQ counts the octets
// up to an urgent mark, or all if urgent data is inline. A difference between the two
// counts shows a mark.
func (s *Socket) unread() (int, error) {
	inline, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_OOBINLINE)
	if err != nil {
		return 0, fmt.Errorf("read SO_OOBINLINE: %w", err)
	}
	var size [2]int
	for i, v := range []int{1, inline} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, v); err != nil {
			return 0, fmt.Errorf("set SO_OOBINLINE: %w", err)
		}
		if size[i], err = unix.IoctlGetInt(s.fd, unix.SIOCINQ); err != nil {
			return 0, fmt.Errorf("SIOCINQ: %w", err)
		}
	}
	if size[0] != size[1] {
		return 0, ErrUrgent
	}
	return size[1], nil
}

// readSent reads the octets of the send queue: those that the peer has not acknowledged
// and those that were not sent.
func (s *Socket) readSent(st *tcp.State) error {
	end, err := s.queueSeq(sendQueue)
	if err != nil {
		return err
	}
	queued, err := unix.IoctlGetInt(s.fd, unix.SIOCOUTQ)
	if err != nil {
		return fmt.Errorf("SIOCOUTQ: %w", err)
	}
	unsent, err := unix.IoctlGetInt(s.fd, unix.SIOCOUTQNSD)
	if err != nil {
		return fmt.Errorf("SIOCOUTQNSD: %w", err)
	}
	st.SndUna = end.Back(seq.Len(queued))
	st.SndNxt = end.Back(seq.Len(unsent))
	if queued == 0 {
		return nil
	}
	b, err := s.peek(queued + peekSlack)
	if err != nil {
		return fmt.Errorf("read the send queue: %w", err)
	}
	if len(b) < queued {
		return fmt.Errorf("the send queue holds %d octets, but only %d can be read", queued, len(b))
	}
	st.Queue = b[len(b)-queued:]
	return nil
}

// queueSeq selects a queue. queueSeq returns the sequence number that follows the last
// octet of the queue.
func (s *Socket) queueSeq(queue int) (seq.Num, error) {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_TCP, unix.TCP_REPAIR_QUEUE, queue); err != nil {
		return 0, fmt.Errorf("select queue %d: %w", queue, err)
	}
	v, err := unix.GetsockoptInt(s.fd, unix.SOL_TCP, unix.TCP_QUEUE_SEQ)
	if err != nil {
		return 0, fmt.Errorf("read the sequence of queue %d: %w", queue, err)
	}
	return seq.Num(v), nil
}

// peek reads up to n octets of the selected queue without removing them.
func (s *Socket) peek(n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := receive(s.fd, b, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if errors.Is(err, unix.EAGAIN) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return b[:got], nil
}

func (s *Socket) readWindows(st *tcp.State) error {
	w, err := getRepairWindow(s.fd)
	if err != nil {
		return fmt.Errorf("read TCP_REPAIR_WINDOW: %w", err)
	}
	st.SndWL1, st.SndWnd, st.MaxWnd = seq.Num(w.sndWL1), w.sndWnd, w.maxWindow
	st.RcvWnd, st.RcvWup = w.rcvWnd, seq.Num(w.rcvWup)
	return nil
}

// readClock reads the local timestamp clock. readClock reads the instant first and sets
// the lowest bit, which the kernel uses as a flag. The engine's timestamps can
// therefore be ahead of the kernel's last one, but never behind it (RFC 7323 §5.3).
func (s *Socket) readClock(st *tcp.State) error {
	st.At = clock.Now()
	ts, err := unix.GetsockoptInt(s.fd, unix.SOL_TCP, unix.TCP_TIMESTAMP)
	if err != nil {
		return fmt.Errorf("read TCP_TIMESTAMP: %w", err)
	}
	st.TSNow = uint32(ts) | 1
	return nil
}
