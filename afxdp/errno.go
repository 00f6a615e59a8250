package afxdp

import "golang.org/x/sys/unix"

// call is a system call on the socket, told apart where the same error means
// different things.
type call uint8

const (
	sendCopy call = iota // sendto in copy mode: the kernel transmits within the call
	sendZero             // sendto in zero-copy mode: it wakes the driver
	recv                 // recvfrom: it wakes the driver's receive side, and probes
	poll                 // ppoll on socket and eventfd
	bindCopy             // bind with XDP_COPY
	bindZero             // bind with XDP_ZEROCOPY
)

// action is what to do about the outcome of a call.
type action uint8

const (
	done        action = iota // nothing
	retry                     // the same again at once
	again                     // no progress now; the work stays where it is for the next time
	lost                      // one frame was consumed and dropped by the driver; go on
	linkDown                  // report ErrLinkDown; the queue stays usable
	gone                      // report ErrGone; the queue is of no use any more
	interrupted               // return early as if something had happened
	wait                      // pause, then the same again, for about a second
	noZero                    // this driver or queue does no zero copy
	fail                      // report
)

// other stands for every error number without a row of its own. A call without
// it fails.
const other = unix.Errno(1 << 16)

// outcomes is what the errors of the kernel mean, as its sources have it
// (net/xdp/xsk.c, net/core/dev.c, drivers' ndo_xsk_wakeup).
var outcomes = []struct {
	call  call
	errno unix.Errno
	act   action
}{
	{sendCopy, 0, done},
	{sendCopy, unix.EINTR, retry},
	{sendCopy, unix.EAGAIN, again},      // budget of the call used, driver busy, or send buffer full
	{sendCopy, unix.ENOBUFS, again},     // no memory for a packet buffer
	{sendCopy, unix.ENOMEM, again},      // the same
	{sendCopy, unix.EBUSY, lost},        // NET_XMIT_DROP: the descriptor is consumed
	{sendCopy, unix.ENETDOWN, linkDown}, // interface not up
	{sendCopy, unix.ENXIO, gone},        // unbound: the interface was removed

	{sendZero, 0, done},
	{sendZero, unix.EINTR, retry},
	{sendZero, unix.EAGAIN, again}, // driver is being reconfigured
	{sendZero, unix.EBUSY, again},  // the same; no descriptor is consumed
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
	{poll, unix.EINTR, interrupted}, // a signal ends a sleep
	{poll, unix.ENOMEM, again},

	{bindCopy, 0, done},
	{bindCopy, unix.EINTR, retry},
	{bindCopy, unix.EBUSY, wait}, // in use, or a closed socket not yet released

	{bindZero, 0, done},
	{bindZero, unix.EINTR, retry},
	{bindZero, unix.EBUSY, wait},
	{bindZero, unix.ENODEV, fail}, // these fail in copy mode too, and say more there
	{bindZero, unix.ENETDOWN, fail},
	{bindZero, unix.EPERM, fail},
	{bindZero, other, noZero}, // EOPNOTSUPP, EINVAL and whatever a driver answers
}

// decide looks an outcome up.
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
