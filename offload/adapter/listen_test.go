package adapter

import (
	"context"
	"net"
	"testing"

	common "github.com/stag-rdma/stag/test/rig"
)

// TestListenHoldsNothing: while Listen waits for a name server, nothing of the adapter
// is held that Close needs.
func TestListenHoldsNothing(t *testing.T) {
	asked := make(chan struct{}, 1)
	was := net.DefaultResolver
	defer func() { net.DefaultResolver = was }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	r := &rig{Stage: common.On(t)}
	a := r.open(Config{KernelPort: true, NoControl: true})
	ctx, stop := a.While(r.Ctx())
	defer stop()
	listening := make(chan error, 1)
	go func() {
		_, err := a.Listen(ctx, "no-such-host.example:0", 0)
		listening <- err
	}()
	common.Wait(t, asked, "a question to the name server")
	if a.busy.TryLock() {
		a.busy.Unlock()
	} else {
		t.Error("Listen holds the adapter while it looks the host up")
	}
	r.Must(a.Close())
	if err := common.Wait(t, listening, "the end of Listen"); err == nil {
		t.Error("Listen listens at a host that has no address")
	}
}
