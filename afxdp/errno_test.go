package afxdp

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/rig"
	"golang.org/x/sys/unix"
)

// TestErrnoRows compares the table of actions with the queue's behaviour. The test
// observes the behaviour for each row.
func TestErrnoRows(t *testing.T) {
	for _, row := range []struct {
		call  call
		errno unix.Errno
		want  string
	}{
		{sendCopy, 0, "stalled"}, // success without progress: the device has fewer transmit queues
		{sendCopy, unix.EINTR, "again at once"},
		{sendCopy, unix.EAGAIN, "stalled"},
		{sendCopy, unix.ENOBUFS, "stalled"},
		{sendCopy, unix.ENOMEM, "stalled"},
		{sendCopy, unix.EBUSY, "lost stalled"},
		{sendCopy, unix.ENETDOWN, "link down"},
		{sendCopy, unix.ENXIO, "gone"},
		{sendCopy, unix.EOPNOTSUPP, "error"},
		{sendCopy, unix.EBADF, "error"},
		{sendZero, 0, ""},
		{sendZero, unix.EINTR, "again at once"},
		{sendZero, unix.EAGAIN, ""},
		{sendZero, unix.EBUSY, ""}, // no frame is lost
		{sendZero, unix.ENOBUFS, ""},
		{sendZero, unix.ENETDOWN, "link down"},
		{sendZero, unix.ENXIO, "gone"},
		{sendZero, unix.EINVAL, "error"},
		{recv, 0, ""},
		{recv, unix.EINTR, "again at once"},
		{recv, unix.EAGAIN, ""},
		{recv, unix.EBUSY, ""},
		{recv, unix.ENOBUFS, ""},
		{recv, unix.ENETDOWN, ""}, // the queue goes on waiting
		{recv, unix.ENXIO, "gone"},
		{recv, unix.EOPNOTSUPP, "error"},
	} {
		t.Run(fmt.Sprintf("%d %v", row.call, row.errno), func(t *testing.T) {
			if got := observe(t, row.call, row.errno); got != row.want {
				t.Errorf("the queue does %q, want %q", got, row.want)
			}
		})
	}
}

// observe lets one system call return errno and describes the effect.
func observe(t *testing.T, c call, errno unix.Errno) (what string) {
	f := newFake(t, small)
	defer f.close(t)
	if c == sendZero {
		f.info.Mode = ModeZeroCopy
	}
	frames := make([]port.Frame, 3)
	f.Take(frames)
	f.Send(frames)
	f.answers = []answer{{errno, nil}}
	err := f.Flush
	if c == recv {
		err = f.probe
	}
	switch err := err(); {
	case errors.Is(err, ErrLinkDown) && errors.Is(err, unix.ENETDOWN):
		what = "link down"
	case errors.Is(err, ErrGone) && errors.Is(err, unix.ENXIO):
		what = "gone"
	case err != nil && errors.Is(err, errno):
		what = "error"
	case err != nil:
		t.Fatalf("error %v for %v", err, errno)
	}
	if f.count.Lost == 1 {
		what += "lost "
	}
	if errno == unix.EINTR && len(f.calls) == 2 {
		return "again at once"
	}
	if f.count.Stalled > 0 {
		what += "stalled"
	}
	if len(f.calls) != 1 {
		t.Errorf("%d calls", len(f.calls))
	}
	return what
}

func TestBindRows(t *testing.T) {
	for _, row := range []struct {
		call  call
		errno unix.Errno
		want  action
	}{
		{bindCopy, 0, done},
		{bindCopy, unix.EINTR, retry},
		{bindCopy, unix.EBUSY, wait},
		{bindCopy, unix.EINVAL, fail},
		{bindCopy, unix.ENODEV, fail},
		{bindCopy, unix.EOPNOTSUPP, fail},
		{bindZero, 0, done},
		{bindZero, unix.EINTR, retry},
		{bindZero, unix.EBUSY, wait},
		{bindZero, unix.ENODEV, fail},
		{bindZero, unix.ENETDOWN, fail},
		{bindZero, unix.EPERM, fail},
		{bindZero, unix.EOPNOTSUPP, noZero},
		{bindZero, unix.EINVAL, noZero},
		{bindZero, unix.ENOMEM, noZero},
		{poll, 0, done},
		{poll, unix.EINTR, interrupted},
		{poll, unix.ENOMEM, again},
		{poll, unix.EFAULT, fail},
	} {
		if got := decide(row.call, row.errno); got != row.want {
			t.Errorf("call %d, %v: action %d, want %d", row.call, row.errno, got, row.want)
		}
	}
}

// TestFlushGoesOnWhileThereIsProgress plays a kernel that stops for every reason in
// turn. Each time it has taken some descriptors before.
func TestFlushGoesOnWhileThereIsProgress(t *testing.T) {
	f := newFake(t, small)
	defer f.close(t)
	frames := make([]port.Frame, 32)
	if f.Take(frames) != 32 || f.Send(frames) != 32 {
		t.Fatal("no room in an empty queue")
	}
	f.Free(frames)
	takes := func(n int, errno unix.Errno) answer {
		return answer{errno, func() {
			for _, d := range f.consume(n) {
				f.complete(d.Addr)
			}
		}}
	}
	f.answers = []answer{
		takes(7, unix.EAGAIN), takes(1, unix.EBUSY), takes(1, unix.EBUSY),
		takes(0, unix.EINTR), takes(12, unix.EAGAIN), takes(1, unix.ENOBUFS), takes(10, 0),
	}
	rig.Must(t, f.Flush())
	if len(f.answers) != 0 || f.Queue.tx.Pending() != 0 {
		t.Fatalf("%d answers left, %d frames pending", len(f.answers), f.Queue.tx.Pending())
	}
	if f.count.Lost != 2 || f.count.Stalled != 0 || f.count.Completed != 32 {
		t.Errorf("counts: %+v", f.count)
	}
	if n := f.Take(make([]port.Frame, 48)); n != 48 {
		t.Errorf("%d of 48 chunks are back", n)
	}
}

// TestFlushAfterLinkDown checks that queued frames leave when the link is up again.
func TestFlushAfterLinkDown(t *testing.T) {
	f := newFake(t, small)
	defer f.close(t)
	frames := make([]port.Frame, 2)
	f.Take(frames)
	f.Send(frames)
	f.answers = []answer{{errno: unix.ENETDOWN}, {act: func() { f.consume(2) }}}
	if err := f.Flush(); !errors.Is(err, ErrLinkDown) {
		t.Fatalf("error %v", err)
	}
	rig.Must(t, f.Flush())
	if f.Queue.tx.Pending() != 0 {
		t.Error("frames left")
	}
}
