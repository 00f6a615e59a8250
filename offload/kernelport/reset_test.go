package kernelport

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
)

// A reset arrives before the last octets have been read, and these octets fill the buffer of a
// ULP that does not consume. The connection ends, although it cannot read the socket's error.
func TestResetBeforeFullBuffer(t *testing.T) {
	sa, sb := sockets(t)
	u := &lazy{deadline: clock.Never}
	k := port(t, sa, u, Config{RcvBuf: 4096})
	defer k.release()
	if err := sb.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, _ = sb.Write(make([]byte, 1<<20)) // as much as fits
	if err := sb.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	sb.Close()
	for i := 0; !k.hung; i++ { // the first wait may only end the start
		k.readable, k.drained = false, false // as after a read that found nothing
		k.bell.Store(false)
		if err := k.wait(clock.Now(), 0); err != nil || i == 10 {
			t.Fatalf("wait %d: %v", i, err)
		}
	}
	for range 100 {
		_, over, err := k.advance(clock.Now())
		if over {
			if !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("it ends with %v", err)
			}
			return
		}
		if err := k.wait(clock.Now(), 0); err != nil {
			if !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("it ends with %v", err)
			}
			return
		}
	}
	t.Errorf("it goes on with %d octets of %d", k.rx.used, len(k.rx.buf))
}
