package handoff

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A route through an interface does not show that the peer's segments arrive at that
// interface with the addresses of the socket. There are four reasons why the segments
// may not arrive there: this host translates addresses, the peer's segments take
// another route, the card strips a VLAN tag, or the connection goes through a tunnel. A
// placeholder would silence such a connection. Therefore Take does not give a socket up
// before a segment of its connection has reached an engine.

// patience holds the time limits of a take-over that waits for a segment of the peer.
type patience struct {
	within time.Duration // longest wait in all
	past   time.Duration // longest wait after the kernel, instead of an engine, has received a segment
	again  time.Duration // shortest time between two probes if the peer is to answer both
	look   time.Duration // first interval between two reads of the kernel's connection state
}

// usual is the patience of every Socket except in tests. Linux answers probes of one
// connection at most once in 500 ms (tcp_invalid_ratelimit). again is therefore longer
// than 500 ms.
var usual = patience{within: 6 * time.Second, past: 500 * time.Millisecond, again: 600 * time.Millisecond, look: 20 * time.Millisecond}

// leastRTO and mostRTO limit the time until the second probe. That time is the kernel's
// retransmission timeout, which is long if the connection has lost many segments.
const (
	leastRTO = 200 * time.Millisecond
	mostRTO  = 2 * time.Second
)

// ask makes the kernel send a window probe, unless a segment has arrived already. The
// probe is an empty segment in front of the octet that the peer expects next. Every TCP
// acknowledges such a segment at once (RFC 9293 §3.10.7.4).
func (s *Socket) ask(heard <-chan struct{}) error {
	select {
	case <-heard:
		return nil
	default:
		return s.repairOff(unix.TCP_REPAIR_OFF)
	}
}

// repairOff sets the option TCP_REPAIR to mode on a socket that is not in repair mode.
// With the value TCP_REPAIR_OFF the kernel sends a window probe. Setting the option
// clears SO_REUSEADDR. repairOff therefore restores SO_REUSEADDR.
func (s *Socket) repairOff(mode int) error {
	reuse, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR)
	if err != nil {
		return fmt.Errorf("read SO_REUSEADDR: %w", err)
	}
	err = unix.SetsockoptInt(s.fd, unix.SOL_TCP, unix.TCP_REPAIR, mode)
	switch {
	case errors.Is(err, unix.EPERM):
		return ErrPermission
	case err != nil:
		return fmt.Errorf("TCP_REPAIR: %w", err)
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, reuse); err != nil {
		return fmt.Errorf("restore SO_REUSEADDR: %w", err)
	}
	return nil
}

// hear waits until a segment of the connection has reached an engine. The caller has
// sent one probe. hear sends further probes as time passes, because the probe or the
// answer can be lost.
func (s *Socket) hear(ctx context.Context, heard <-chan struct{}) error {
	select {
	case <-heard:
		return nil
	default:
	}
	h, err := s.newHearing(time.Now())
	if err != nil {
		return err
	}
	pause := s.patience.look
	tick := time.NewTimer(pause)
	defer tick.Stop()
	for {
		select {
		case <-heard:
			return nil
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), h.unseen())
		case now := <-tick.C:
			if err := h.look(now, heard); err != nil {
				return err
			}
			// Thousands of sockets may wait, so that a long wait must read the state
			// less often.
			pause = min(2*pause, 8*s.patience.look)
			tick.Reset(min(pause, time.Until(sooner(h.next, h.end))))
		}
	}
}

// hearing is one wait for a segment.
type hearing struct {
	s     *Socket
	began time.Time
	end   time.Time // time when the take-over gives up
	rto   time.Duration
	next  time.Time // time of the next probe
	asked int
	had   uint32 // segments that the kernel had received at the last probe
	past  uint32 // segments that the kernel has received since: they bypassed the XDP program
}

func (s *Socket) newHearing(now time.Time) (*hearing, error) {
	info, err := getTCPInfo(s.fd)
	if err != nil {
		return nil, fmt.Errorf("read TCP_INFO: %w", err)
	}
	rto := min(max(time.Duration(info.Rto)*time.Microsecond, leastRTO), mostRTO)
	return &hearing{
		s: s, began: now, end: now.Add(s.patience.within), rto: rto, next: now.Add(min(rto, s.patience.again)), asked: 1,
	}, nil
}

// look reads the state of the kernel's connection, and sends the next probe if its time
// has come. A segment that the kernel receives long after the grace period was not
// delayed in the stack. Such a segment bypassed the XDP program.
func (h *hearing) look(now time.Time, heard <-chan struct{}) error {
	info, err := getTCPInfo(h.s.fd)
	if err != nil {
		return fmt.Errorf("read TCP_INFO: %w", err)
	}
	if info.State != established {
		return fmt.Errorf("%w any more: it is in %s", ErrNotEstablished, stateName(info.State))
	}
	if h.asked > 1 {
		if h.past == 0 && info.Segs_in != h.had {
			h.end = sooner(h.end, now.Add(h.s.patience.past))
		}
		h.past = info.Segs_in - h.had
	}
	if now.After(h.end) {
		return h.unseen()
	}
	if now.Before(h.next) {
		return nil
	}
	if h.asked == 1 {
		h.had = info.Segs_in
	}
	h.next = h.after(now)
	h.asked++
	return h.s.ask(heard)
}

// after returns when to send the next probe. now is the time of the current probe. The
// second probe is sent soon, because the first may be lost. If the first probe arrived
// and only its answer was lost, the second probe comes too early for another answer.
// The third probe must come late enough for an answer. The time of the third probe
// therefore counts from the first probe.
func (h *hearing) after(now time.Time) time.Time {
	if h.asked == 1 {
		return later(now.Add(h.rto), h.began.Add(h.s.patience.again))
	}
	return now.Add(max(h.rto, h.s.patience.again))
}

// unseen returns the error for a connection if no segment of it has reached an engine.
func (h *hearing) unseen() error {
	waited := time.Since(h.began).Round(100 * time.Millisecond)
	if h.past == 0 {
		return fmt.Errorf("%w within %v, nor the kernel, although the peer was asked %d times: check that the peer is there (ping), or use the kernel port (KernelPort)",
			ErrUnseen, waited, h.asked)
	}
	return fmt.Errorf("%w within %v, and %d reached the kernel past the XDP program: this host translates addresses (nft, iptables, kube-proxy), "+
		"the way back leads through another interface, the card takes the VLAN tag off, or a tunnel or IPsec is in between; "+
		"dial the peer's own address, mend the route or the VLAN, or use the kernel port (KernelPort)",
		ErrUnseen, waited, h.past)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func sooner(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
