package faults

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	common "github.com/stag-rdma/stag/test/rig"
)

// ours and theirs are the two sides of a cable: A has an offloaded interface, B is a plain kernel.
const (
	ours   = pair.A
	theirs = pair.B
)

// These are the patterns of the two directions.
const (
	seedOurs   octets.Pattern = 1
	seedTheirs octets.Pattern = 2
)

// patience is an upper bound for every wait. A test that reaches it fails.
const patience = 2 * time.Minute

// rig is the set-up of a test. It is removed when the test ends.
type rig struct {
	common.Stage
	*Cable
	nic *nic.NIC
}

// newRig makes a cable between two plain kernels.
func newRig(t testing.TB, c Config) *rig {
	t.Helper()
	need.Root(t)
	need.XDP(t)
	k, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d", c.Seed)
	r := &rig{Stage: common.On(t), Cable: k}
	t.Cleanup(func() {
		if r.nic != nil {
			r.Check(r.nic.Close())
		}
		r.Check(k.Close())
	})
	return r
}

// open offloads the local interface.
func (r *rig) open() {
	r.Helper()
	r.in(ours, func() (err error) {
		// The cable damages segments. One damaged segment of 65536 looks like one whose sender left the sum to a device.
		r.nic, err = nic.Open(nic.Config{Link: r.Ends[ours].Name, Partial: nic.PartialRefused})
		return err
	})
}

// in runs f inside a side's namespace.
func (r *rig) in(side pair.Side, f func() error) {
	r.Helper()
	netns.In(r, r, side, f)
}

// both makes p the plan of both directions.
func (r *rig) both(p Plan) {
	r.Helper()
	r.Must(errors.Join(r.Set(ours, p), r.Set(theirs, p)))
}

// tally returns the counters of the segments that a side sent.
func (r *rig) tally(side pair.Side) Tally {
	r.Helper()
	t, err := r.Tally(side)
	r.Must(err)
	return t
}

// setSysctl changes a setting, below /proc/sys/net, of a side's namespace.
func (r *rig) setSysctl(side pair.Side, name, value string) {
	r.Helper()
	r.in(side, func() error { return netns.Sysctl(name, value) })
}

// connect opens a connection from the local side, and returns both ends.
func (r *rig) connect(v6 bool) (our, peer *net.TCPConn) {
	r.Helper()
	addr := r.Ends[theirs].V4.Addr().String()
	if v6 {
		addr = r.Ends[theirs].V6.Addr().String()
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // an MPTCP connection cannot be taken over
	var l net.Listener
	r.in(theirs, func() (err error) {
		l, err = lc.Listen(r.Ctx(), "tcp", net.JoinHostPort(addr, "0"))
		return err
	})
	defer l.Close()
	var dialled net.Conn
	r.in(ours, func() (err error) {
		dialled, err = (&net.Dialer{}).DialContext(r.Ctx(), "tcp", l.Addr().String())
		return err
	})
	r.Cleanup(func() { dialled.Close() })
	r.Must(l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)))
	accepted, err := l.Accept()
	r.Must(err)
	r.Cleanup(func() { accepted.Close() })
	r.Must(accepted.SetDeadline(time.Now().Add(patience)))
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

// congestion makes a kernel connection use the algorithm name.
func (r *rig) congestion(c *net.TCPConn, name string) {
	r.Helper()
	raw, err := c.SyscallConn()
	r.Must(err)
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	})
	r.Must(errors.Join(err, failed))
}

// drops returns how many segments the local engine dropped, by reason.
func (r *rig) drops() map[string]uint64 {
	r.Helper()
	var sum engine.Counters
	for _, e := range r.nic.Engines() {
		c, err := e.Counters(r.Ctx())
		r.Must(err)
		sum.Add(&c)
	}
	all := map[string]uint64{}
	sum.Drops(func(layer, reason string, n uint64) { all[layer+" "+reason] = n })
	return all
}

// kernelCounter returns the counter of a side's kernel TCP with that name.
func (r *rig) kernelCounter(side pair.Side, name string) (n uint64) {
	r.Helper()
	found := false
	r.in(side, func() error {
		for _, file := range []string{"snmp", "netstat"} {
			b, err := os.ReadFile("/proc/thread-self/net/" + file)
			if err != nil {
				return err
			}
			lines := strings.Split(string(b), "\n")
			for i := 0; i+1 < len(lines); i += 2 { // names, then numbers
				names := strings.Fields(lines[i])
				if at := slices.Index(names, name); at > 0 && strings.HasPrefix(names[0], "Tcp") {
					n, err = strconv.ParseUint(strings.Fields(lines[i+1])[at], 10, 64)
					found = true
					return err
				}
			}
		}
		return nil
	})
	if !found {
		r.Fatalf("the kernel counts no %s", name)
	}
	return n
}

// plain is the application at the other side: it writes a pattern to a kernel socket and checks the arriving pattern,
// octet by octet.
type plain struct {
	conn     *net.TCPConn
	send     uint64 // octets to write at most
	out, in  octets.Pattern
	stop     atomic.Bool // write no more
	sent     atomic.Uint64
	received atomic.Uint64
	wrote    chan error // one value, when all is written
	read     chan error // one value, at the end of the stream
}

// start starts both directions.
func (p *plain) start() *plain {
	p.wrote, p.read = make(chan error, 1), make(chan error, 1)
	go func() { p.wrote <- p.writeAll() }()
	go func() { p.read <- p.readAll() }()
	return p
}

func (p *plain) writeAll() error {
	buf := make([]byte, 64<<10)
	for pos := uint64(0); pos < p.send && !p.stop.Load(); {
		b := buf[:min(uint64(len(buf)), p.send-pos)]
		p.out.Fill(b, pos)
		n, err := p.conn.Write(b)
		pos += uint64(n)
		p.sent.Store(pos)
		if err != nil {
			return fmt.Errorf("write at octet %d: %w", pos, err)
		}
	}
	return nil
}

func (p *plain) readAll() error {
	buf := make([]byte, 256<<10)
	for pos := uint64(0); ; {
		n, err := p.conn.Read(buf)
		if i := p.in.Differs(buf[:n], pos); i >= 0 {
			return fmt.Errorf("octet %d is wrong", pos+uint64(i))
		}
		pos += uint64(n)
		p.received.Store(pos)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read at octet %d: %w", pos, err)
		}
	}
}
