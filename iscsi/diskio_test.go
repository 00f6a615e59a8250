package iscsi_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/test/rig"
)

// crowd is a medium whose requests wait until some of them are there at the same time, and
// that fails behind an offset.
type crowd struct {
	unit.Backend
	mu   sync.Mutex
	here int
	want int
	full chan struct{} // closed when want requests are there
	bad  int64         // requests from this offset on fail
}

func (c *crowd) meet(off int64) error {
	c.mu.Lock()
	if c.here++; c.here == c.want {
		close(c.full)
	}
	c.mu.Unlock()
	<-c.full
	if off >= c.bad {
		return errors.New("broken")
	}
	return nil
}

func (c *crowd) ReadAt(p []byte, off int64) (int, error) {
	if err := c.meet(off); err != nil {
		return 0, err
	}
	return c.Backend.ReadAt(p, off)
}

func (c *crowd) WriteAt(p []byte, off int64) (int, error) {
	if err := c.meet(off); err != nil {
		return 0, err
	}
	return c.Backend.WriteAt(p, off)
}

// TestManyParts: the commands of a long ReadAt and WriteAt are in flight at once, and n says
// how far the octets are right if one of them fails.
func TestManyParts(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		length, bad, want int
	}{{8 * mib, 16 * mib, 8 * mib}, {12*mib + 512, 16 * mib, 12*mib + 512}, {8 * mib, 5 * mib, 5 * mib}, {8 * mib, 0, 0}} {
		for _, write := range []bool{false, true} {
			medium := ram(t, 16*mib)
			data := random(16*mib, 7)
			_, err := medium.WriteAt(data, 0)
			rig.Must(t, err)
			s := serveOn(t, &crowd{Backend: medium, want: 8, full: make(chan struct{}), bad: int64(c.bad)}, nil)
			d, err := iscsi.Dial(context.Background(), url(s, "", ""), iscsi.Config{})
			rig.Must(t, err)
			var n int
			p := random(c.length, 8)
			done := make(chan error)
			go func() {
				var err error
				if write {
					n, err = d.WriteAt(p, 0)
				} else {
					n, err = d.ReadAt(p, 0)
				}
				done <- err
			}()
			err = rig.Wait(t, done, "the parts of a transfer are in flight at once")
			if n != c.want || (err == nil) != (c.want == c.length) || errors.Is(err, io.EOF) {
				t.Errorf("write %v: %d octets, %v, want %d", write, n, err, c.want)
			}
			rig.Must(t, func() error { _, err := medium.ReadAt(data, 0); return err }())
			if !bytes.Equal(p[:n], data[:n]) {
				t.Errorf("write %v: other octets", write)
			}
			rig.Check(t, d.Close())
		}
	}
}
