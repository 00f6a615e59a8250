package rdma_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/need"
)

// end is what the connections of a program share. Make it once: opening an adapter
// and registering memory take longer than sending a message.
type end struct {
	adapter *rdma.Adapter
	pd      *rdma.PD // its QPs reach its regions, and no others
	region  *rdma.MR
}

// open makes an end that uses memory. The adapter's Close closes all of it.
func open(config rdma.Config, memory []byte, access rdma.Access) (*end, error) {
	adapter, err := rdma.Open(config)
	if err != nil {
		return nil, err
	}
	pd, err := adapter.AllocPD()
	if err != nil {
		return nil, errors.Join(err, adapter.Close())
	}
	region, err := pd.RegMR(memory, access)
	if err != nil {
		return nil, errors.Join(err, adapter.Close())
	}
	return &end{adapter, pd, region}, nil
}

// newQP makes a QP for one connection, and its CQ. Close the QP first.
func (e *end) newQP() (*rdma.QP, *rdma.CQ, error) {
	cq, err := e.adapter.CreateCQ(16)
	if err != nil {
		return nil, nil, err
	}
	qp, err := e.pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return nil, nil, errors.Join(err, cq.Close())
	}
	return qp, cq, nil
}

// finished waits for the next completion, which must be a success.
func finished(ctx context.Context, cq *rdma.CQ) error {
	c, err := cq.Next(ctx)
	if err == nil && c.Status != rdma.Success {
		err = fmt.Errorf("%v: %v", c.Op, c.Status)
	}
	return err
}

// put writes the first n octets of the region into memory of the server at address.
// Then it sends an empty message, which arrives when the octets are in place.
func (e *end) put(ctx context.Context, address string, n int) error {
	qp, cq, err := e.newQP()
	if err != nil {
		return err
	}
	defer cq.Close()
	defer qp.Close()
	if err := qp.Dial(ctx, address, rdma.ConnParams{}); err != nil {
		return err
	}
	offer := qp.Conn().PrivateData // the server's words: check them before use
	if len(offer) != 12 {
		return fmt.Errorf("%s offers no memory: its private data has %d octets, not 12", address, len(offer))
	}
	_, err = qp.PostSend(
		rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{e.region.SGE(0, n)},
			RKey: rdma.STag(binary.BigEndian.Uint32(offer)), RemoteAddr: binary.BigEndian.Uint64(offer[4:])},
		rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Signaled},
	)
	if err != nil {
		return err
	}
	if err := finished(ctx, cq); err != nil {
		return err
	}
	return qp.Disconnect(ctx) // nil: the server has everything
}

// serve lets the next client write into the region. It returns when the client has
// written.
func (e *end) serve(ctx context.Context, l *rdma.Listener) error {
	qp, cq, err := e.newQP()
	if err != nil {
		return err
	}
	defer cq.Close()
	defer qp.Close()
	if _, err := qp.PostRecv(rdma.RecvWR{}); err != nil { // before the message comes
		return err
	}
	request, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	offer := binary.BigEndian.AppendUint32(nil, uint32(e.region.RKey()))
	offer = binary.BigEndian.AppendUint64(offer, e.region.Addr())
	if err := request.Accept(ctx, qp, rdma.ConnParams{PrivateData: offer}); err != nil {
		return err
	}
	if err := finished(ctx, cq); err != nil {
		return err
	}
	return qp.Disconnect(ctx)
}

// TestREADMEQuotes: the README's programs are those above.
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

// TestREADMERuns: the README's programs do what they say, on both paths.
func TestREADMERuns(t *testing.T) {
	t.Run("kernel port", func(t *testing.T) {
		c := rdma.Config{KernelPort: true}
		runREADME(t, [2]rdma.Config{c, c}, "127.0.0.1", [2]func(func() error) error{here, here})
	})
	t.Run("offloaded", func(t *testing.T) {
		need.Root(t)
		need.XDP(t)
		p, err := pair.New(pair.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		c := [2]rdma.Config{{Ports: []string{p.Ends[pair.A].Name}}, {Ports: []string{p.Ends[pair.B].Name}}}
		runREADME(t, c, p.Ends[pair.B].V4.Addr().String(), [2]func(func() error) error{
			func(f func() error) error { return p.Do(pair.A, f) },
			func(f func() error) error { return p.Do(pair.B, f) },
		})
	})
}

// here runs f where we are.
func here(f func() error) error { return f() }

func runREADME(t *testing.T, c [2]rdma.Config, host string, in [2]func(func() error) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var ends [2]*end
	for side, access := range []rdma.Access{0, rdma.LocalWrite | rdma.RemoteWrite} {
		err := in[side](func() (err error) {
			ends[side], err = open(c[side], make([]byte, 1<<20), access)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer ends[side].adapter.Close()
	}
	l, err := ends[1].adapter.Listen(ctx, host+":0", rdma.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const rounds = 3
	served := make(chan error, rounds)
	for round := range byte(rounds) {
		go func() { served <- ends[1].serve(ctx, l) }()
		data := bytes.Repeat([]byte("0123456789abcde"+string('A'+round)), 1<<16)
		copy(ends[0].region.Bytes(), data)
		if err := ends[0].put(ctx, l.Addr().String(), len(data)); err != nil {
			t.Fatalf("the client: %v", err)
		}
		if err := <-served; err != nil {
			t.Fatalf("the server: %v", err)
		}
		if !bytes.Equal(ends[1].region.Bytes(), data) {
			t.Error("the server's memory is not what was written")
		}
	}
	for _, e := range ends {
		leavesNothing(t, ctx, e.adapter)
	}
}

// leavesNothing: an adapter has the region of its end, and nothing of the
// connections that have been.
func leavesNothing(t *testing.T, ctx context.Context, a *rdma.Adapter) {
	t.Helper()
	r, err := a.Report(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.CQs) != 0 || len(r.QPs) != 0 || len(r.MRs) != 1 {
		t.Errorf("%d CQs, %d QPs and %d regions are left, and only one region should be", len(r.CQs), len(r.QPs), len(r.MRs))
	}
}

// TestREADMEBadOffer: private data of any other length is an error, not a panic.
func TestREADMEBadOffer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := open(rdma.Config{KernelPort: true}, make([]byte, 1), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer e.adapter.Close()
	l, err := e.adapter.Listen(ctx, "127.0.0.1:0", rdma.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, offer := range []string{"", "eleven octe", "thirteen octe"} {
		accepted := make(chan error, 1)
		go func() { accepted <- accept(ctx, e, l, offer) }()
		err := e.put(ctx, l.Addr().String(), 1)
		if err == nil || !strings.Contains(err.Error(), "offers no memory") {
			t.Errorf("an offer of %q: %v", offer, err)
		}
		if err := <-accepted; err != nil {
			t.Errorf("accepting with %q: %v", offer, err)
		}
	}
	leavesNothing(t, ctx, e.adapter)
}

// accept answers the next client with private data, and waits until it has left.
func accept(ctx context.Context, e *end, l *rdma.Listener, offer string) error {
	qp, cq, err := e.newQP()
	if err != nil {
		return err
	}
	defer cq.Close()
	defer qp.Close()
	request, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	// The client may have reset the connection before Accept has returned.
	if err := request.Accept(ctx, qp, rdma.ConnParams{PrivateData: []byte(offer)}); err == nil {
		<-qp.Done()
	}
	return nil
}
