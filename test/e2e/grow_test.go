package e2e

import (
	"path/filepath"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/nic"
)

// TestAddFails lets Add fail late, once before the adapter knows the interface's engines and
// once after that. The adapter goes on without the interface: it takes a connection over, and
// a connection whose route leads there stays where it is. The connections follow their route
// when Add has succeeded.
func TestAddFails(t *testing.T) {
	for name, way := range map[string]struct {
		room   uint32 // flows that the interface's program has room for; 0: enough
		frames uint32
	}{
		"no engine":         {frames: 32}, // an engine needs 64
		"no room for flows": {frames: 512, room: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCards(t)
			c.cable("r0", "r1", "198.18.2")
			for side, end := range []string{"r0", "r1"} {
				c.in(pair.Side(side), func() error { return loader.SetTxChecksum(end, false) })
			}
			c.stayWith(loader.Options{Link: "r0", MaxFlows: way.room}, "grow")
			all := []running{c.unfinished(16 << 20), c.unfinished(16 << 20)}
			if _, err := c.add(nic.Config{Link: "r0", RxFrames: way.frames}); err == nil {
				t.Fatal("Add has succeeded")
			}
			all = append(all, c.unfinished(16<<20))
			c.ip(ours, "route", "replace", c.addr(theirs, false)+"/32", "via", "198.18.2.2", "dev", "r0", "src", c.addr(ours, false))
			all[0].reach(8 << 20)
			c.severalQueues()
			c.in(ours, func() error {
				_, err := loader.Unload(loader.UnloadOptions{Instance: filepath.Join(loader.Root, "grow")})
				return err
			})
			third, err := c.add(nic.Config{Link: "r0", RxFrames: 512})
			c.Must(err)
			for _, x := range all {
				x.movesTo(third)
				x.finish()
			}
		})
	}
}

// TestAddAfterClose adds an interface when another one, which had a program and a map of
// flows of its own, is closed.
func TestAddAfterClose(t *testing.T) {
	c := newCards(t, "grow0", "grow1")
	x := c.unfinished(16 << 20)
	c.Must(c.nics[1].Close())
	c.severalQueues()
	x.reach(4 << 20)
	again, err := c.add(nic.Config{Link: "q0", RxFrames: 512})
	c.Must(err)
	c.transfer(1 << 20).finish()
	c.routeBy(ours, 1)
	x.movesTo(again)
	x.finish()
}

// add opens one more local interface until the test ends.
func (c *cards) add(cfg nic.Config) (n *nic.NIC, err error) {
	c.in(ours, func() error {
		n, err = c.nics[0].Add(cfg)
		return nil
	})
	if err == nil {
		c.Cleanup(func() { c.Check(n.Close()) })
	}
	return n, err
}

// severalQueues adds an interface with more receive queues than the others have.
func (c *cards) severalQueues() {
	c.Helper()
	c.ip(ours, "link", "add", "w0", "numrxqueues", "2", "numtxqueues", "2", "type", "veth", "peer", "name", "w1")
	for _, end := range []string{"w0", "w1"} {
		c.ip(ours, "link", "set", end, "up")
	}
	n, err := c.add(nic.Config{Link: "w0", RxFrames: 512})
	c.Must(err)
	if len(n.Engines()) != 2 {
		c.Errorf("%d engines", len(n.Engines()))
	}
}
