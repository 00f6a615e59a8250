package nic_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/test/need"
)

// TestOpenMTU: what no chunk holds is told apart from what only larger chunks
// hold, and neither leaves the interface in use.
func TestOpenMTU(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	for name, c := range map[string]struct {
		mtu  int
		nic  nic.Config
		is   error // nil: only the text counts
		says string
	}{
		"no chunk":      {9000, nic.Config{}, loader.ErrMTU, "3506"},
		"larger chunks": {3000, nic.Config{FrameSize: 2048}, nil, "larger chunks"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := pair.New(pair.Config{MTU: c.mtu})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			c.nic.Link = p.Ends[pair.A].Name
			open := func() error {
				return p.Do(pair.A, func() error {
					n, err := nic.Open(c.nic)
					if err == nil {
						n.Close()
					}
					return err
				})
			}
			for range 2 {
				err := open()
				if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("%v, want an error that says %q", err, c.says)
				}
			}
		})
	}
}
