package rdma_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/netns"
)

// put writes memory into the memory of the server at address. Then it sends an empty
// message, which arrives when the octets are in place.
func put(ctx context.Context, adapter *rdma.Adapter, address string, memory []byte) error {
	ep, err := adapter.CreateEndpoint(rdma.EndpointConfig{Memory: memory})
	if err != nil {
		return err
	}
	defer ep.Close()
	if err := ep.Dial(ctx, address, rdma.ConnParams{}); err != nil {
		return err
	}
	offer := ep.QP.Conn().PrivateData // sent by the server: check it before use
	if len(offer) != 12 {
		return fmt.Errorf("%s offers no memory: its private data has %d octets, not 12", address, len(offer))
	}
	_, err = ep.QP.PostSend(
		rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{ep.MR.SGE(0, len(memory))},
			RKey: rdma.STag(binary.BigEndian.Uint32(offer)), RemoteAddr: binary.BigEndian.Uint64(offer[4:])},
		rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Signaled},
	)
	if err != nil {
		return err
	}
	if _, err := ep.Sent(ctx); err != nil {
		return err
	}
	return ep.QP.Disconnect(ctx) // nil: the server has received everything
}

// serve lets the next client write into memory. It returns when the client has written.
func serve(ctx context.Context, adapter *rdma.Adapter, l *rdma.Listener, memory []byte) error {
	ep, err := adapter.CreateEndpoint(rdma.EndpointConfig{Memory: memory, Access: rdma.LocalWrite | rdma.RemoteWrite})
	if err != nil {
		return err
	}
	defer ep.Close()
	if _, err := ep.QP.PostRecv(rdma.RecvWR{}); err != nil { // posted before the message comes
		return err
	}
	request, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	offer := binary.BigEndian.AppendUint32(nil, uint32(ep.MR.RKey()))
	offer = binary.BigEndian.AppendUint64(offer, ep.MR.Addr())
	if err := ep.Accept(ctx, request, rdma.ConnParams{PrivateData: offer}); err != nil {
		return err
	}
	if _, err := ep.Received(ctx); err != nil {
		return err
	}
	return ep.QP.Disconnect(ctx)
}

// TestREADMEQuotes: the README quotes put and serve.
func TestREADMEQuotes(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```\n").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != 2 {
		t.Fatalf("the README quotes %d programs, not a client and a server", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(string(source), "\n"+b[1]+"\n") {
			t.Errorf("the README quotes what is not in readme_test.go:\n%s", b[1])
		}
	}
}

// TestREADMERuns: the README's programs move the octets, on both paths.
func TestREADMERuns(t *testing.T) {
	t.Run("kernel port", func(t *testing.T) {
		c := rdma.Config{KernelPort: true}
		runREADME(t, [2]rdma.Config{c, c}, "127.0.0.1", [2]func(func() error) error{here, here})
	})
	t.Run("offloaded", func(t *testing.T) {
		p := netns.XDPPair(t, pair.Config{})
		c := [2]rdma.Config{{Ports: []string{p.Ends[pair.A].Name}}, {Ports: []string{p.Ends[pair.B].Name}}}
		runREADME(t, c, p.Ends[pair.B].V4.Addr().String(), [2]func(func() error) error{
			func(f func() error) error { return p.Do(pair.A, f) },
			func(f func() error) error { return p.Do(pair.B, f) },
		})
	})
}

// here runs f in the current namespace.
func here(f func() error) error { return f() }

func runREADME(t *testing.T, c [2]rdma.Config, host string, in [2]func(func() error) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var adapters [2]*rdma.Adapter
	for side := range adapters {
		err := in[side](func() (err error) {
			adapters[side], err = rdma.Open(c[side])
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer adapters[side].Close()
	}
	l, err := adapters[1].Listen(ctx, host+":0", rdma.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	memory := make([]byte, 1<<20)
	const rounds = 3
	served := make(chan error, rounds)
	for round := range byte(rounds) {
		go func() { served <- serve(ctx, adapters[1], l, memory) }()
		data := bytes.Repeat([]byte("0123456789abcde"+string('A'+round)), 1<<16)
		if err := put(ctx, adapters[0], l.Addr().String(), data); err != nil {
			t.Fatalf("the client: %v", err)
		}
		if err := <-served; err != nil {
			t.Fatalf("the server: %v", err)
		}
		if !bytes.Equal(memory, data) {
			t.Error("the server's memory is not what was written")
		}
	}
	for _, a := range adapters {
		leavesNothing(t, ctx, a)
	}
}

// leavesNothing demands that an adapter has no CQ, QP or region left.
func leavesNothing(t *testing.T, ctx context.Context, a *rdma.Adapter) {
	t.Helper()
	r, err := a.Report(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.CQs) != 0 || len(r.QPs) != 0 || len(r.MRs) != 0 {
		t.Errorf("%d CQs, %d QPs and %d regions are left", len(r.CQs), len(r.QPs), len(r.MRs))
	}
}

// TestREADMEBadOffer: private data of another length than 12 is an error, not a panic.
func TestREADMEBadOffer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a, err := rdma.Open(rdma.Config{KernelPort: true})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	l, err := a.Listen(ctx, "127.0.0.1:0", rdma.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, offer := range []string{"", "eleven octe", "thirteen octe"} {
		accepted := make(chan error, 1)
		go func() { accepted <- accept(ctx, a, l, offer) }()
		err := put(ctx, a, l.Addr().String(), make([]byte, 1))
		if err == nil || !strings.Contains(err.Error(), "offers no memory") {
			t.Errorf("an offer of %q: %v", offer, err)
		}
		if err := <-accepted; err != nil {
			t.Errorf("accepting with %q: %v", offer, err)
		}
	}
	leavesNothing(t, ctx, a)
}

// accept answers the next client with private data, and waits until the connection is gone.
func accept(ctx context.Context, a *rdma.Adapter, l *rdma.Listener, offer string) error {
	ep, err := a.CreateEndpoint(rdma.EndpointConfig{})
	if err != nil {
		return err
	}
	defer ep.Close()
	request, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	// The client may have reset the connection before Accept has returned.
	if err := ep.Accept(ctx, request, rdma.ConnParams{PrivateData: []byte(offer)}); err == nil {
		<-ep.QP.Done()
	}
	return nil
}
