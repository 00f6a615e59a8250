package adapter

import (
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/need"
	common "github.com/stag-rdma/stag/test/rig"
)

// rig is two adapters that reach each other, a with a layer. What they leave behind
// fails the test.
type rig struct {
	common.Stage
	a, b  *Adapter
	host  string     // of b
	layer *testLayer // of a
}

// onBothPaths runs test over the kernel port, as any user, and over the offloaded
// path, as root.
func onBothPaths(t *testing.T, test func(r *rig)) {
	t.Run("kernel port", func(t *testing.T) {
		r := &rig{Stage: common.On(t), host: "127.0.0.1", layer: &testLayer{}}
		common.NoLeaks(t)
		r.a, r.b = r.open(Config{KernelPort: true}, r.layer), r.open(Config{KernelPort: true})
		test(r)
	})
	t.Run("offloaded", func(t *testing.T) {
		need.Root(t)
		need.XDP(t)
		r := &rig{Stage: common.On(t), layer: &testLayer{}}
		common.NoLeaks(t)
		hosts, err := pair.New(pair.Config{})
		r.Must(err)
		t.Cleanup(func() { r.Check(hosts.Close()) })
		r.host = hosts.Ends[pair.B].V4.Addr().String()
		for side, a := range map[pair.Side]**Adapter{pair.A: &r.a, pair.B: &r.b} {
			r.Must(hosts.Do(side, func() error {
				var layers []Layer
				if side == pair.A {
					layers = append(layers, r.layer)
				}
				*a = r.open(Config{Ports: []string{hosts.Ends[side].Name}, Notify: r.layer.notify}, layers...)
				return nil
			}))
		}
		test(r)
	})
}

// open opens an adapter that is closed when the test ends.
func (r *rig) open(c Config, layers ...Layer) *Adapter {
	r.Helper()
	a, err := Open(c, layers...)
	r.Must(err)
	r.Cleanup(func() {
		r.Check(a.Close())
		r.Check(a.Close())
	})
	return a
}
