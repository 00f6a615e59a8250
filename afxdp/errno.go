package afxdp

import "golang.org/x/sys/unix"

// call is a system call on the socket. A system call has two values of call if an error
// means different things in copy mode and in zero-copy mode.
type call uint8

const (
	sendCopy call = iota // sendto in copy mode: the kernel transmits within the call
	sendZero             // sendto in zero-copy mode: it wakes the driver
	recv                 // recvfrom: it wakes the driver's receive side, or tests whether the interface exists
	poll                 // ppoll on socket and eventfd
	bindCopy             // bind with XDP_COPY
	bindZero             // bind with XDP_ZEROCOPY
)

// action is the caller's reaction to the result of a call.
type action uint8

const (
	done        action = iota // success: do nothing
	retry                     // repeat the call at once
	again                     // nothing was sent now: leave the work in the ring for the next call
	lost                      // the driver dropped one frame: go on with the next
	linkDown                  // return ErrLinkDown: the queue stays usable
	gone                      // return ErrGone: the caller can only call Close
	interrupted               // return early, as if an event had arrived
	wait                      // sleep a little and repeat the call, for about four seconds
	noZero                    // this driver or queue does not support zero copy
	fail                      // return the error
)

// other stands for every error number without a row of its own. If a call has no row
// for other, such an error means fail.
const other = unix.Errno(1 << 16)

// outcomes maps the kernel's errors to actions. The meanings come from the sources of
// Linux (net/xdp/xsk.c, net/core/dev.c, drivers' ndo_xsk_wakeup).
var outcomes = []struct {
	call  call
	errno unix.Errno
	act   action
}{
	{sendCopy, 0, done},
	{sendCopy, unix.EINTR, retry},
	{sendCopy, unix.EAGAIN, again},      // the call's budget is used up, the driver is busy, or the send buffer is full
	{sendCopy, unix.ENOBUFS, again},     // no memory for a packet buffer
	{sendCopy, unix.ENOMEM, again},      // no memory for a packet buffer
	{sendCopy, unix.EBUSY, lost},        // NET_XMIT_DROP: the descriptor is consumed
	{sendCopy, unix.ENETDOWN, linkDown}, // the interface is not up
	{sendCopy, unix.ENXIO, gone},        // the socket is unbound because the interface was removed

	{sendZero, 0, done},
	{sendZero, unix.EINTR, retry},
	{sendZero, unix.EAGAIN, again}, // the driver is being reconfigured
	{sendZero, unix.EBUSY, again},  // the driver is being reconfigured; no descriptor is consumed
	{sendZero, unix.ENOBUFS, again},
	{sendZero, unix.ENETDOWN, linkDown},
	{sendZero, unix.ENXIO, gone},

	{recv, 0, done},
	{recv, unix.EINTR, retry},
	{recv, unix.EAGAIN, again},
	{recv, unix.EBUSY, again},
	{recv, unix.ENOBUFS, again},
	{recv, unix.ENETDOWN, linkDown},
	{recv, unix.ENXIO, gone},

	{poll, 0, done},
	{poll, unix.EINTR, interrupted}, // a signal ends the sleep
	{poll, unix.ENOMEM, again},

	{bindCopy, 0, done},
	{bindCopy, unix.EINTR, retry},
	{bindCopy, unix.EBUSY, wait}, // another socket uses the queue, or the kernel has not yet released a closed socket

	{bindZero, 0, done},
	{bindZero, unix.EINTR, retry},
	{bindZero, unix.EBUSY, wait},
	{bindZero, unix.ENODEV, fail}, // copy mode has this error and the next two as well, so they do not mean that zero copy is missing
	{bindZero, unix.ENETDOWN, fail},
	{bindZero, unix.EPERM, fail},
	{bindZero, other, noZero}, // EOPNOTSUPP, EINVAL or any other error of a driver
}

// decide returns the action for the result errno of call c.
func decide(c call, errno unix.Errno) action {
	act := fail
	for i := range outcomes {
		switch o := &outcomes[i]; {
		case o.call != c:
		case o.errno == errno:
			return o.act
		case o.errno == other:
			act = o.act
		}
	}
	return act
}
