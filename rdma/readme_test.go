package rdma_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/loader/pair"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/need"
)

// put writes data into the memory that the program at address offers, and
// tells it by a message. The private data of the peer's answer says where to.
func put(ctx context.Context, adapter *rdma.Adapter, address string, data []byte) error {
	pd, err := adapter.AllocPD() // what follows belongs together
	if err != nil {
		return err
	}
	region, err := pd.RegMR(data, 0) // nobody but us may use it
	if err != nil {
		return err
	}
	defer region.Close()
	cq, err := adapter.CreateCQ(16)
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return err
	}
	defer qp.Close()
	if err := qp.Dial(ctx, address, rdma.ConnParams{}); err != nil {
		return err // TCP, MPA, and the take-over from the kernel
	}
	offer := qp.Conn().PrivateData
	_, err = qp.PostSend(
		rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{region.SGE(0, len(data))},
			RKey: rdma.STag(binary.BigEndian.Uint32(offer)), RemoteAddr: binary.BigEndian.Uint64(offer[4:])},
		rdma.SendWR{Op: rdma.WRSend, Inline: []byte("there it is"), Flags: rdma.Signaled},
	)
	if err != nil {
		return err
	}
	if err := cq.Wait(ctx); err != nil { // both have been sent: data may be used again
		return err
	}
	return qp.Disconnect(ctx) // nil: the peer has had it all; else why not
}

// TestREADMEQuotes: the README's program is the one above.
func TestREADMEQuotes(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(readme), "```go\n")
	quoted, _, closed := strings.Cut(rest, "```\n")
	if !found || !closed || !strings.Contains(quoted, "func put") {
		t.Fatalf("the README quotes no program: %q", quoted)
	}
	if !strings.Contains(string(source), "\n"+quoted+"\n") {
		t.Errorf("the README quotes what is not in readme_test.go:\n%s", quoted)
	}
}

// offered is what the other end of put does: it offers memory, and waits for
// the message.
func offered(ctx context.Context, l *rdma.Listener, pd *rdma.PD, cq *rdma.CQ, size int) (got []byte, err error) {
	region, err := pd.AllocMR(size, rdma.LocalWrite|rdma.RemoteWrite)
	if err != nil {
		return nil, err
	}
	note, err := pd.AllocMR(64, rdma.LocalWrite)
	if err != nil {
		return nil, err
	}
	qp, err := pd.CreateQP(rdma.QPConfig{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return nil, err
	}
	defer qp.Close()
	if _, err := qp.PostRecv(rdma.RecvWR{SGL: []rdma.SGE{note.SGE(0, 64)}}); err != nil {
		return nil, err
	}
	req, err := l.Accept(ctx)
	if err != nil {
		return nil, err
	}
	where := binary.BigEndian.AppendUint32(nil, uint32(region.RKey()))
	where = binary.BigEndian.AppendUint64(where, region.Addr())
	if err := req.Accept(ctx, qp, rdma.ConnParams{PrivateData: where}); err != nil {
		return nil, err
	}
	var c [1]rdma.Completion
	for cq.Poll(c[:]) == 0 {
		if err := cq.Wait(ctx); err != nil {
			return nil, err
		}
	}
	if c[0].Status != rdma.Success || string(note.Bytes()[:c[0].Length]) != "there it is" {
		return nil, fmt.Errorf("received %+v", c[0])
	}
	return bytes.Clone(region.Bytes()), qp.Disconnect(ctx)
}

// TestREADMERuns: the README's program does what it says, on both paths.
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
	pd, err1 := adapters[1].AllocPD()
	cq, err2 := adapters[1].CreateCQ(16)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	type result struct {
		got []byte
		err error
	}
	peer := make(chan result, 1)
	go func() {
		got, err := offered(ctx, l, pd, cq, len(data))
		peer <- result{got, err}
	}()
	if err := put(ctx, adapters[0], l.Addr().String(), bytes.Clone(data)); err != nil {
		t.Errorf("the program: %v", err)
	}
	l.Close() // if it never came so far
	r := <-peer
	if r.err != nil {
		t.Errorf("its peer: %v", r.err)
	} else if !bytes.Equal(r.got, data) {
		t.Error("the peer's memory is not what was written")
	}
}
