package adapter

import (
	"io"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	common "github.com/stag-rdma/stag/test/rig"
)

// TestHandBack: a connection to an echo goes back to the kernel and still echoes. Over the
// kernel's TCP, and for a QP, HandBack is refused.
func TestHandBack(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		const size, before = 2 << 20, 1 << 20
		ctx := r.Ctx()
		expect := uint64(before)
		if r.host != "127.0.0.1" {
			expect = size // the program continues behind the ULP
		}
		source := octets.NewTransfer(octets.Plan{Send: before, Seed: 7, Expect: expect, PeerSeed: 7, Hold: true})
		x, y := r.sockets()
		other, err := y.TakeOver(ctx, octets.NewEcho(), TakeOver{Kind: bpf.KindRDMA, Accepted: true})
		r.Must(err)
		c, err := x.TakeOver(ctx, source, TakeOver{Kind: bpf.KindBytes})
		r.Must(err)
		c.Wake()
		other.Wake()
		r.Eventually("octets", func() bool { return source.Received() > before/4 })
		back, err := c.HandBack(ctx)
		if c.flow == nil {
			r.Says(err, ErrKernelRuns)
			source.Release()
			c.Wake()
			r.Wait(source.Done(), "the end of the ULP")
			r.Check(source.Err())
			return
		}
		r.Must(err)
		defer back.Close()
		r.Wait(source.Done(), "the end of the ULP")
		r.Says(source.Err(), nic.ErrHandedBack)
		_, err = other.HandBack(ctx)
		r.Says(err, nic.ErrNoOctets)

		rest := make([]byte, size-int(source.Sent()))
		octets.Pattern(7).Fill(rest, source.Sent())
		sent := make(chan error, 1)
		go func() {
			_, err := back.Write(rest)
			if err == nil {
				err = back.CloseWrite()
			}
			sent <- err
		}()
		r.Must(back.SetReadDeadline(common.Deadline()))
		got, err := io.ReadAll(back)
		r.Must(err)
		r.Must(<-sent)
		if at := octets.Pattern(7).Differs(got, source.Received()); at >= 0 || len(got)+int(source.Received()) != size {
			t.Errorf("%d octets came back of %d, wrong from %d on", len(got)+int(source.Received()), size, at)
		}
	})
}
