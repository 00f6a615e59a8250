package afxdp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// NewSocket makes a socket for Suspend or Resume. The calling thread must be in the network
// namespace of the interface.
func NewSocket() (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, fmt.Errorf("afxdp: %w", explain(stepSocket, err))
	}
	return fd, nil
}

// Suspend gives the interface's queue up, so that another process can bind a socket to it.
// The kernel's frames come back, and those in transmission may be lost. The frames that the
// caller holds stay the caller's. Until Resume nothing is received, and what is sent is
// lost.
//
// fresh is a socket of NewSocket, which Suspend takes over. It gets the number of the
// queue's descriptor, because another goroutine may sleep in Sleep. The caller must wake
// that goroutine afterwards: its sleep keeps the old socket bound.
func (q *Queue) Suspend(fresh int) error {
	if err := q.replace(fresh); err != nil {
		return err
	}
	q.sys = func(uintptr) unix.Errno { return 0 } // an unbound socket answers as if the interface were gone
	q.unplugRings()
	q.takeBack()
	if err := q.maps.Run(); err != nil {
		return fmt.Errorf("afxdp: suspend %s: %w", q.name, err)
	}
	return nil
}

// replace makes fresh the queue's descriptor. The old socket is closed when its rings are
// unmapped and no goroutine sleeps in it.
func (q *Queue) replace(fresh int) error {
	defer unix.Close(fresh)
	if q.fd < 0 {
		return ErrClosed
	}
	if err := unix.Dup3(fresh, q.fd, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("afxdp: %s: replace the socket: %w", q.name, err)
	}
	return nil
}

// Resume binds the queue again after Suspend, in the mode that it had, with the errors of
// Open. fresh is a socket of NewSocket, which Resume takes over. The caller must then put
// the socket (FD) into the XDP program's map. After an error the queue stays suspended.
func (q *Queue) Resume(fresh int) error {
	if err := q.replace(fresh); err != nil {
		return err
	}
	q.takeBack()
	err := q.steps(
		step{stepUmem, q.registerAgain},
		step{stepRings, q.mapRings},
		step{stepBind, q.bindAgain},
		step{stepBudget, q.budgetAgain},
		step{stepBuffer, q.bufferAgain},
	)
	if err != nil {
		q.unplugRings()
		q.takeBack()
		return errors.Join(err, q.maps.Run())
	}
	q.sys = q.trap
	return nil
}

// bindAgain binds in the mode of the first time. It changes nothing in q.info, which other
// goroutines may read.
func (q *Queue) bindAgain() (err error) {
	q.refill()
	if q.info.Mode == ModeZeroCopy {
		_, err = q.tryBind(bindZero, unix.XDP_ZEROCOPY)
	} else {
		_, err = q.tryBind(bindCopy, unix.XDP_COPY)
	}
	return err
}

func (q *Queue) budgetAgain() error {
	if q.info.Mode == ModeZeroCopy || q.info.TxBudget == oldBudget {
		return nil
	}
	return unix.SetsockoptInt(q.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, int(q.info.TxBudget))
}

// bufferAgain sets the send buffer that the queue had. The kernel doubles what it is given.
func (q *Queue) bufferAgain() error {
	err := unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, int(q.info.SendBuffer/2))
	if errors.Is(err, unix.EPERM) {
		err = unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, int(q.info.SendBuffer/2))
	}
	return err
}

// takeBack ends the kernel's ownership of all chunks.
func (q *Queue) takeBack() {
	for i, h := range q.state {
		i := uint32(i)
		switch {
		case h&away == 0:
		case i >= q.cfg.RxFrames:
			q.note(completed, i)
			q.drop(i, away)
		default:
			q.state[i] = 0
			q.rxPool = append(q.rxPool, i)
		}
	}
	q.flying, q.level, q.short = 0, 0, false
	q.brim = brim{}
}
