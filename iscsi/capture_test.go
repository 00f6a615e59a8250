package iscsi_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/tgtd"
)

// TestCapture: a capture says that the flow of a session is one of iSCSI, so that stag
// dump names its PDUs.
func TestCapture(t *testing.T) {
	s := newStage(t, "AF_XDP", tgtd.Config{})
	ctx, stop := context.WithCancel(s.Ctx())
	begun, ended := make(chan struct{}), make(chan error, 1)
	var mu sync.Mutex
	kinds, packets := map[uint32]string{}, map[uint32]int{} // by flow; packets since the kind is known
	go func() {
		ended <- s.adapter.Capture(ctx, report.Filter{SnapLen: 256}, func(b report.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			select {
			case <-begun:
			default:
				close(begun)
			}
			for _, st := range b.Streams {
				kinds[st.Flow] = st.Kind
			}
			for _, p := range b.Packets {
				if kinds[p.Flow] != "" {
					packets[p.Flow]++
				}
			}
			return nil
		})
	}()
	s.Wait(begun, "the beginning of the capture")
	d := s.dial("", iscsi.Config{})
	want := random(64<<10, 5)
	_, err := d.WriteAt(want, 0)
	s.Must(err)
	s.Eventually("packets of the session", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range packets {
			if n > 40 {
				return true
			}
		}
		return false
	})
	stop()
	s.Must(<-ended)
	for flow, kind := range kinds {
		if kind != report.ISCSI {
			t.Errorf("flow %#x is of kind %q", flow, kind)
		}
	}
	if len(kinds) != 1 {
		t.Errorf("kinds %v", kinds)
	}
}
