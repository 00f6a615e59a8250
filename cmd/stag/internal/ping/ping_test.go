package ping

import (
	"bytes"
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
)

// These tests use the kernel port and need no rights.

// told is a writer that passes on the lines of a server's log.
type told chan string

func (c told) Write(b []byte) (int, error) { c <- string(b); return len(b), nil }

// service is a running server.
type service struct {
	*testing.T
	at     netip.AddrPort
	log    told
	stop   context.CancelFunc
	ended  chan struct{}
	result Result
	err    error
}

func serve(t *testing.T, o Options) *service {
	t.Helper()
	o.KernelPort, o.Address = true, "127.0.0.1"
	s := &service{T: t, log: make(told, 64), ended: make(chan struct{})}
	o.Log = s.log
	if o.Size == 0 {
		o.Size = MaxSize
	}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() { s.result, s.err = Server(ctx, o); close(s.ended) }()
	t.Cleanup(func() { stop(); <-s.ended })
	line := <-s.log
	at, err := netip.ParseAddrPort(strings.TrimSpace(strings.TrimPrefix(line, "listening on ")))
	rig.Must(t, err)
	s.at = at
	return s
}

func (s *service) end() (Result, error) { <-s.ended; return s.result, s.err }

// at returns o with the address of the server at a, for a client.
func (o Options) at(a netip.AddrPort) Options {
	o.KernelPort, o.Address, o.Port = true, a.Addr().String(), int(a.Port())
	if o.Size == 0 {
		o.Size = DefaultSize
	}
	return o
}

// TestPing: data of any size goes there and back, and both ends compare it.
func TestPing(t *testing.T) {
	for _, size := range []int{1, 2, 12, 13, 14, 15, 63, 64, 65, 1459, 1460, 1461, 4096, 65535, 65536} {
		s := serve(t, Options{Count: 11, Validate: true})
		r, err := Client(t.Context(), Options{Count: 11, Size: size, Validate: true}.at(s.at))
		rig.Must(t, err)
		other, err := s.end()
		rig.Must(t, err)
		for _, r := range []Result{r, other} {
			if r.Pings != 11 || r.Octets != uint64(11*size) || r.Path != "kernel port" || r.Address != s.at.String() ||
				!r.Validated || r.Interrupted || r.Error != "" || r.Seconds <= 0 {
				t.Errorf("size %d: %+v", size, r)
			}
		}
		if x := r.Exchange; x == nil || x.Min <= 0 || x.Avg < x.Min || x.Max < x.Avg || x.P50 > x.P99 || x.P99 > x.P999 || x.P999 > x.Max {
			t.Errorf("%+v", x)
		}
		if other.Clients != 1 || other.Failed != 0 || other.Exchange != nil {
			t.Errorf("%+v", other)
		}
	}
}

// TestData: -v prints the data. The data begins with another character in each ping. The first character follows the
// last one.
func TestData(t *testing.T) {
	var here, there bytes.Buffer
	s := serve(t, Options{Data: &there})
	_, err := Client(t.Context(), Options{Count: 60, Size: 20, Data: &here}.at(s.at))
	rig.Must(t, err)
	_, err = s.end()
	rig.Must(t, err)
	lines := strings.Split(here.String(), "\n")
	for n, want := range map[int]string{
		0: "ping data: rdma-ping-0: ABCDEF", 57: "ping data: rdma-ping-57: zABCD", 58: "ping data: rdma-ping-58: ABCDE", 60: "",
	} {
		if lines[n] != want {
			t.Errorf("line %d: %q, want %q", n, lines[n], want)
		}
	}
	if strings.ReplaceAll(there.String(), "server ", "") != here.String() {
		t.Errorf("the server printed\n%s", there.String())
	}
	if got := printable([]byte("a\x1b[2J\xffz\x00b")); got != "a.[2J.z" {
		t.Errorf("%q", got)
	}
}

// TestPersistent: a server has several clients at a time, and one of them fails. An interrupt ends the server
// normally, also while a client is connected.
func TestPersistent(t *testing.T) {
	s := serve(t, Options{Persistent: true, Size: 1000})
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			if r, err := Client(t.Context(), Options{Count: 50, Size: 1000, Validate: true}.at(s.at)); err != nil || r.Pings != 50 {
				t.Errorf("%+v: %v", r, err)
			}
		})
	}
	clients.Wait()
	_, err := Client(t.Context(), Options{Count: 1, Size: 1001}.at(s.at))
	if err == nil {
		t.Error("1001 octets were taken")
	}
	if line := <-s.log; !strings.Contains(line, "1001 octets, this server takes 1 to 1000") || !strings.HasPrefix(line, "client 127.0.0.1:") {
		t.Errorf("%q", line)
	}
	idle := connected(t, s, 64)
	rig.Must(t, idle.exchangeOf(t, 0))
	s.stop()
	r, err := s.end()
	rig.Must(t, err)
	if !r.Interrupted || r.Clients != 10 || r.Failed != 1 || r.Pings != 401 || r.Error != "" {
		t.Errorf("%+v", r)
	}
	<-idle.qp.Done()
	rig.Must(t, idle.qp.Err())
}

// TestServerCount: a client asks for more pings than the server answers.
func TestServerCount(t *testing.T) {
	s := serve(t, Options{Count: 3})
	r, err := Client(t.Context(), Options{Count: 5}.at(s.at))
	rig.Says(t, err, nil, "ping 3: ")
	if r.Pings != 3 || r.Error != err.Error() {
		t.Errorf("%+v", r)
	}
	r, err = s.end()
	rig.Says(t, err, nil, "client 127.0.0.1:", "more than the 3 pings of -C")
	if r.Pings != 3 || r.Failed != 1 {
		t.Errorf("%+v", r)
	}
}

// TestInterrupted: a client without a count ends normally when it is interrupted.
func TestInterrupted(t *testing.T) {
	s := serve(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var data told = make(chan string)
	go func() {
		for range 10 {
			<-data
		}
		cancel()
		for range data {
		}
	}()
	r, err := Client(ctx, Options{Data: data}.at(s.at))
	close(data)
	rig.Must(t, err)
	if !r.Interrupted || r.Pings < 10 {
		t.Errorf("%+v", r)
	}
	other, err := s.end()
	rig.Must(t, err)
	if other.Interrupted || other.Pings != r.Pings {
		t.Errorf("%+v, and the client %+v", other, r)
	}
}

// TestInterruptedWaiting: a server is interrupted before a client connects.
func TestInterruptedWaiting(t *testing.T) {
	s := serve(t, Options{})
	s.stop()
	if r, err := s.end(); err != nil || !r.Interrupted || r.Clients != 0 || r.Path != "" {
		t.Errorf("%+v: %v", r, err)
	}
}

// TestNobodyListens: the error names the address, and no ping is counted.
func TestNobodyListens(t *testing.T) {
	s := serve(t, Options{})
	s.stop()
	s.end()
	r, err := Client(t.Context(), Options{}.at(s.at))
	rig.Says(t, err, nil, s.at.String(), "refused")
	if r.Pings != 0 || r.Path != "" || r.Error != err.Error() {
		t.Errorf("%+v", r)
	}
}

// connected returns a connected client whose steps the test runs.
func connected(t *testing.T, s *service, size int) *client {
	t.Helper()
	a, err := rdma.Open(rdma.Config{KernelPort: true})
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, a.Close()) })
	c, err := newClient(a, Options{Size: size})
	rig.Must(t, err)
	rig.Must(t, c.qp.Dial(t.Context(), s.at.String(), params))
	return c
}

// exchangeOf does ping n, and returns its error.
func (c *client) exchangeOf(t *testing.T, n uint64) error {
	fill(c.source.Bytes(), n)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return c.exchange(ctx, n)
}
