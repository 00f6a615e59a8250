package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/perftest"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/captures"
)

// theSeen are the tests for which captures exist. Each capture has 20 messages of 65,536 octets.
var theSeen = []Test{WriteBW, ReadBW, SendBW}

// Lengths of MPA's frame and of the headers of ULPDUs. Package wire is not used here on purpose, so that these tests
// are independent of it.
const (
	mpaLen, taggedLen, untaggedLen = 24, 14, 18
)

// ulpdus returns the ULPDUs of a stream up to the end of the capture.
func ulpdus(stream []byte) (list [][]byte) {
	for b := stream[min(mpaLen, len(stream)):]; len(b) > 2; {
		n := 2 + int(binary.BigEndian.Uint16(b))
		whole := (n+3)&^3 + 4
		if whole > len(b) {
			break
		}
		list = append(list, b[2:n])
		b = b[whole:]
	}
	return list
}

// said returns the control messages of one end in a capture.
func said(stream []byte) (list [][]byte) {
	for _, u := range ulpdus(stream) {
		list = append(list, u[untaggedLen:])
	}
	return list
}

// captured returns the connections of a captured test.
func captured(t *testing.T, test Test) (control, data captures.Conn) {
	t.Helper()
	conns, err := captures.Read("ib_" + string(test) + "-head")
	if err != nil || len(conns) != 2 {
		t.Fatalf("%d connections, %v", len(conns), err)
	}
	return conns[0], conns[1]
}

// TestCapturedDest: the peer uses the memory that perftest announces.
func TestCapturedDest(t *testing.T) {
	control, data := captured(t, WriteBW)
	server, client := said(control.Server.Bytes()), said(control.Client.Bytes())
	if len(server) != 9 || len(client) != 9 {
		t.Fatalf("%d and %d messages", len(server), len(client))
	}
	v, err := perftest.ParseVersion(server[0])
	if err != nil || v.Text != perftest.Ours {
		t.Fatalf("%+v, %v", v, err)
	}
	for i, want := range []int{4096, 64} {
		if n, err := perftest.ParseNumber(server[1+i], "size", mostPage); n != want || err != nil {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}
	if err := perftest.CheckMTU(server[3]); err != nil {
		t.Error(err)
	}
	for i, m := range server[4:] {
		d, err := perftest.ParseDest(m, v)
		if err != nil {
			t.Fatal(err)
		}
		write := ulpdus(data.Client.Bytes())[0]
		key, at := binary.BigEndian.Uint32(write[2:]), binary.BigEndian.Uint64(write[6:taggedLen])
		switch early := i < 2; {
		case early && d != (perftest.Dest{}):
			t.Errorf("message %d says %+v", 4+i, d)
		case !early && (d.Key != key || d.Address != at || d.QPN == 0):
			t.Errorf("message %d says %+v, and the client Writes to %#x, %#x", 4+i, d, key, at)
		}
	}
}

// partnered returns a test with perftest as the other end.
func partnered(test Test, address string, port uint16) Options {
	return Options{
		Test: test, KernelPort: true, Perftest: true, Address: address, Port: port,
		Size: 64 << 10, Iterations: 20, QPs: 1, TxDepth: 20, RxDepth: 512,
	}
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// waiting is a writer that is closed when a server prints that it waits for its client.
type waiting chan struct{}

func (w waiting) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "Waiting") {
		close(w)
	}
	return len(b), nil
}

type ended struct {
	Result
	err error
}

// started runs o, and returns when the server listens.
func started(t *testing.T, o Options) <-chan ended {
	t.Helper()
	ready, end := make(waiting), make(chan ended, 1)
	o.Out = ready
	go func() {
		r, err := Run(t.Context(), o)
		end <- ended{r, err}
	}()
	select {
	case <-ready:
	case e := <-end:
		t.Fatal(e.err)
	case <-time.After(patience):
		t.Fatal("the server does not begin")
	}
	return end
}

// script is a peer that takes the place of perftest and sends captured messages.
type script struct {
	*testing.T
	*perftestPeer
}

// actor is a peer that does nothing by itself.
func actor(t *testing.T, o Options) *script {
	t.Helper()
	a, err := rdma.Open(rdma.Config{KernelPort: true, RegionHeap: o.heap()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	p := &perftestPeer{run: &runner{Options: o, adapter: a, interrupted: func() bool { return false }}}
	if p.control, err = newControl(p.run.adapter); err != nil {
		t.Fatal(err)
	}
	return &script{t, p}
}

// speak makes the control connection, from l if it is set, and sends each message in its turn. It stops when the
// other end does not answer.
func (s *script) speak(l *rdma.Listener, messages [][]byte) error {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if _, err := s.connect(ctx, l, s.control.qp, rdma.ConnParams{}); err != nil {
		return err
	}
	for _, m := range messages {
		if _, err := s.swap(ctx, m); err != nil {
			return err
		}
	}
	if l != nil { // the client sends next, unless it has ended
		_, err := s.control.hear(ctx)
		return err
	}
	return nil
}

// TestServerOfScript: a server gets the captured messages of a client, and altered ones. Each alteration ends it with
// one line.
func TestServerOfScript(t *testing.T) {
	for _, test := range theSeen {
		control, _ := captured(t, test)
		words := said(control.Client.Bytes())
		for name, c := range spoilt(words) {
			t.Run(string(test)+"/"+name, func(t *testing.T) {
				t.Parallel()
				port := freePort(t)
				end := started(t, partnered(test, "", port))
				a := actor(t, partnered(test, "127.0.0.1", port))
				a.speak(nil, c.words)
				a.control.qp.Abort()
				judge(t, end, c.says)
			})
		}
	}
}

// TestClientOfScript: a client gets the captured messages of a server, and altered ones. Each alteration ends it with
// one line.
func TestClientOfScript(t *testing.T) {
	for _, test := range theSeen {
		control, _ := captured(t, test)
		words := said(control.Server.Bytes())
		for name, c := range spoilt(words) {
			t.Run(string(test)+"/"+name, func(t *testing.T) {
				t.Parallel()
				port := freePort(t)
				a := actor(t, partnered(test, "", port))
				l, err := a.run.adapter.Listen(t.Context(), a.run.at(), rdma.ListenConfig{})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				gone := make(chan error, 1)
				go func() {
					err := a.speak(l, c.words)
					l.Close()
					a.control.qp.Abort()
					gone <- err
				}()
				end := make(chan ended, 1)
				r, err := Run(t.Context(), partnered(test, "127.0.0.1", port))
				end <- ended{r, err}
				<-gone
				judge(t, end, c.says)
			})
		}
	}
}

// lines are the messages of an exchange, and the error that they cause.
type lines struct {
	words [][]byte
	says  string
}

// spoilt returns exchanges that end too early or have another message. They end before the data connections.
func spoilt(words [][]byte) map[string]lines {
	all := map[string]lines{}
	changed := func(i int, b []byte) [][]byte {
		return append(append([][]byte{}, words[:i]...), b)
	}
	names := []string{"version", "page size", "cache line", "MTU", "memory"}
	for i, name := range names {
		all["leaves before its "+name] = lines{words[:i], "the peer has left in the middle of the test"}
		all["short "+name] = lines{changed(i, words[i][:len(words[i])-1]), "octets instead of its " + name}
		all["long "+name] = lines{changed(i, append(append([]byte{}, words[i]...), 0)), "octets instead of its " + name}
		all["empty "+name] = lines{changed(i, nil), "the peer sent a message of 0 octets instead of its " + name}
	}
	all["leaves before its version"] = lines{nil, ""} // the script may have ended before this end has connected
	all["old"] = lines{changed(0, []byte("5.33\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")), "the peer's perftest speaks version 5.33"}
	all["new"] = lines{changed(0, []byte("7.01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")), "the peer's perftest speaks version 7.01"}
	all["another program"] = lines{changed(0, []byte("GET / HTTP/1.1\r\n")), "is it perftest?"}
	all["no pages"] = lines{changed(1, make([]byte, 4)), "its page size is 0 octets"}
	all["huge pages"] = lines{changed(1, perftest.AppendNumber(nil, 1<<30)), "its page size is 1073741824 octets"}
	all["huge lines"] = lines{changed(2, perftest.AppendNumber(nil, -1)), "its cache line is 4294967295 octets"}
	all["no MTU"] = lines{changed(3, []byte("xx")), `its MTU is "xx"`}
	return all
}

// judge demands that a run ends with an error of one line that contains says.
func judge(t *testing.T, end <-chan ended, says string) {
	t.Helper()
	select {
	case e := <-end:
		if e.err == nil || !strings.Contains(e.err.Error(), says) || strings.Contains(e.err.Error(), "\n") || errors.Is(e.err, ErrInterrupted) {
			t.Errorf("%v, want %q", e.err, says)
		}
	case <-time.After(3 * patience):
		t.Errorf("it does not end; want %q", says)
	}
}

// TestPartnerSaysAsCaptured: against captured messages, this end sends what perftest sent, except for names, keys and
// addresses.
func TestPartnerSaysAsCaptured(t *testing.T) {
	for _, test := range theSeen {
		t.Run(string(test), func(t *testing.T) {
			control, _ := captured(t, test)
			words, want := said(control.Client.Bytes()), said(control.Server.Bytes())
			port := freePort(t)
			end := started(t, partnered(test, "", port))
			a := actor(t, partnered(test, "127.0.0.1", port))
			ctx := t.Context()
			if _, err := a.connect(ctx, nil, a.control.qp, rdma.ConnParams{}); err != nil {
				t.Fatal(err)
			}
			var err error
			a.version, err = perftest.ParseVersion(words[0])
			if err != nil {
				t.Fatal(err)
			}
			a.page, a.line = ourPage, ourLine
			if err := a.makeStrands(); err != nil {
				t.Fatal(err)
			}
			for i, m := range words[:len(want)] {
				if i == 5 { // the server has reported that it waits for the data connection
					if _, err := a.connect(ctx, nil, a.strands[0].l.qp, a.strands[0].params()); err != nil {
						t.Fatal(err)
					}
				}
				got, err := a.swap(ctx, m)
				if err != nil {
					t.Fatal(err)
				}
				if g, w := masked(i, got), masked(i, want[i]); g != w {
					t.Errorf("message %d is %q, want %q", i, g, w)
				}
			}
			a.control.qp.Abort()
			judge(t, end, "the peer has left in the middle of the test")
		})
	}
}

// masked returns message i without what differs between runs. It keeps the number of Reads of a Dest, and that the
// Dest has a QP, a key and an address.
func masked(i int, b []byte) string {
	if i == 3 {
		return fmt.Sprintf("an MTU of %d octets", len(b))
	}
	if i < 5 {
		return string(b)
	}
	d, err := perftest.ParseDest(b, perftest.Version{})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d octets, %d reads, QP %v, key %v", len(b), d.OutReads, d.QPN != 0, d.Key != 0)
}

// TestPartners: both ends of a test with --perftest get the same result, in every test.
func TestPartners(t *testing.T) {
	for _, test := range Tests {
		for _, both := range []bool{false, true} {
			if both && test.Latency() {
				continue
			}
			t.Run(fmt.Sprintf("%s, both %v", test, both), func(t *testing.T) {
				o := partnered(test, "", freePort(t))
				o.Size, o.Iterations, o.Both = 3000, 300, both
				if !test.Latency() {
					o.QPs = 3
				}
				end := started(t, o)
				o.Address = "127.0.0.1"
				client, err := Run(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				server := <-end
				if server.err != nil {
					t.Fatal(server.err)
				}
				if !test.Latency() {
					c, s := client.Bandwidth[0], server.Bandwidth[0]
					if c.Iterations != s.Iterations || c.Size != s.Size || test != SendBW && math.Abs(c.Mpps-s.Mpps) > 1e-9*c.Mpps {
						t.Errorf("%+v and %+v", c, s)
					}
				}
			})
		}
	}
}

// TestCreditsOfOld: underway ignores a count that the peer wrote in an earlier size. It also handles a count that has
// wrapped after 2^32 messages.
func TestCreditsOfOld(t *testing.T) {
	a := actor(t, partnered(SendBW, "127.0.0.1", 1))
	a.page, a.line = ourPage, ourLine
	if err := a.makeStrands(); err != nil {
		t.Fatal(err)
	}
	x := a.strands[0]
	for _, c := range []struct {
		posted, granted uint64
		said            uint32
		underway        uint64
	}{
		{0, 0, 0, 0}, {5, 0, 0, 5}, {5, 0, 3, 2}, {5, 3, 3, 2}, {5, 3, 5, 0},
		{0, 0, 20, 0}, {5, 0, 20, 5}, {5, 3, 2, 2}, // counts of an earlier size, and late counts
		{1<<32 + 5, 1<<32 - 9, 0xffff_fffe, 7}, {1<<32 + 5, 1<<32 - 9, 1, 4}, {1<<32 + 5, 1<<32 - 9, 6, 14},
	} {
		x.begin(64)
		x.l.posted, x.granted = c.posted, c.granted
		binary.LittleEndian.PutUint32(x.grant(), c.said)
		if got := x.underway(); got != c.underway {
			t.Errorf("%+v: %d under way", c, got)
		}
	}
}
