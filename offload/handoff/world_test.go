package handoff

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// Verdicts of the world's XDP program on segments to a port of side A.
const (
	passAll   uint32 = iota
	dropAll          // as if they were steered to an engine that drops them
	dropLarge        // those of more than 1000 octets
)

// world is a veth pair; connections are taken over on side A, where segments
// can be kept from the kernel by their destination port.
type world struct {
	rig.Stage
	*pair.Pair
	rules *ebpf.Map // local port: one of the above
	grace Grace
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{Stage: rig.On(t), Pair: netns.XDPPair(t, pair.Config{})}
	w.attach()
	return w
}

func (w *world) attach() {
	w.Helper()
	var err error
	w.rules, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 4096})
	w.Must(err)
	w.Cleanup(func() { w.rules.Close() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: filter(w.rules.FD())})
	w.Must(err)
	w.Cleanup(func() { program.Close() })
	netns.In(w, w, pair.A, func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: w.Ends[pair.A].Index, Flags: link.XDPDriverMode})
		if err == nil {
			w.Cleanup(func() { l.Close() })
		}
		return err
	})
}

// filter drops TCP segments over IPv4 and IPv6 by rules[destination port].
func filter(rules int) asm.Instructions {
	const pass, drop = 2, 1
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Reg(asm.R6, asm.R3),
		asm.Sub.Reg(asm.R6, asm.R2), // the packet's length
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 38), // up to the destination port over IPv4
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R5, asm.R2, 12, asm.Half),
		asm.JEq.Imm(asm.R5, 0xdd86, "v6"),
		asm.JNE.Imm(asm.R5, 0x0008, "pass"),
		asm.LoadMem(asm.R5, asm.R2, 23, asm.Byte),
		asm.JNE.Imm(asm.R5, 6, "pass"),
		asm.LoadMem(asm.R5, asm.R2, 36, asm.Half),
		asm.Ja.Label("look"),
		asm.Add.Imm(asm.R4, 20).WithSymbol("v6"),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R5, asm.R2, 20, asm.Byte),
		asm.JNE.Imm(asm.R5, 6, "pass"),
		asm.LoadMem(asm.R5, asm.R2, 56, asm.Half),
		asm.HostTo(asm.BE, asm.R5, asm.Half).WithSymbol("look"),
		asm.StoreMem(asm.RFP, -4, asm.R5, asm.Word),
		asm.LoadMapPtr(asm.R1, rules),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.LoadMem(asm.R5, asm.R0, 0, asm.Word),
		asm.JEq.Imm(asm.R5, int32(dropAll), "drop"),
		asm.JNE.Imm(asm.R5, int32(dropLarge), "pass"),
		asm.JLT.Imm(asm.R6, 1000, "pass"),
		asm.Mov.Imm(asm.R0, drop).WithSymbol("drop"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, pass).WithSymbol("pass"),
		asm.Return(),
	}
}

// rule says what becomes of segments to port from now on.
func (w *world) rule(port uint16, rule uint32) {
	if err := w.rules.Put(uint32(port), rule); err != nil {
		w.Error(err)
	}
}

// sysctl sets a parameter of side A's namespace.
func (w *world) sysctl(name, value string) {
	w.Helper()
	netns.In(w, w, pair.A, func() error { return netns.Sysctl("ipv4/"+name, value) })
}

// how a connection of side A comes about. The zero value is dialled over IPv4.
type how struct {
	accepted, v6 bool
	network      string // of side A; "" means tcp4 or tcp6
	mptcp        bool
	bindPort     bool // side A dials from a port that it has chosen
}

func (h how) String() string {
	name := map[bool]string{true: "accepted", false: "dialled"}[h.accepted]
	if h.v6 {
		return name + " IPv6"
	}
	return name + " IPv4"
}

// connect makes a connection and returns both ends of it.
func (w *world) connect(h how) (a, b *net.TCPConn) {
	w.Helper()
	server, client := pair.B, pair.A
	if h.accepted {
		server, client = pair.A, pair.B
	}
	network := map[bool]string{true: "tcp6", false: "tcp4"}[h.v6]
	var l net.Listener
	w.Must(w.Do(server, func() (err error) {
		lc := net.ListenConfig{}
		lc.SetMultipathTCP(h.mptcp)
		listen, addr := network, w.addr(server, h.v6).String()
		if server == pair.A && h.network != "" {
			listen, addr = h.network, ""
		}
		l, err = lc.Listen(w.Context(), listen, net.JoinHostPort(addr, "0"))
		return err
	}))
	defer l.Close()
	to := netip.AddrPortFrom(w.addr(server, h.v6), l.Addr().(*net.TCPAddr).AddrPort().Port())
	var c net.Conn
	w.Must(w.Do(client, func() (err error) {
		d := net.Dialer{}
		d.SetMultipathTCP(h.mptcp)
		if h.bindPort {
			d.LocalAddr = &net.TCPAddr{Port: 20000 + os.Getpid()%10000}
		}
		c, err = d.DialContext(w.Context(), network, to.String())
		return err
	}))
	s, err := l.Accept()
	w.Must(err)
	w.Cleanup(func() { c.Close(); s.Close() })
	if h.accepted {
		return s.(*net.TCPConn), c.(*net.TCPConn)
	}
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

func (w *world) addr(side pair.Side, v6 bool) netip.Addr {
	if v6 {
		return w.Ends[side].V6.Addr()
	}
	return w.Ends[side].V4.Addr()
}

// steps is an engine's part as tests play it: parked segments are dropped.
type steps struct {
	w                *world
	port             uint16
	parked, unparked int
	state            tcp.State
	placeholder      *Placeholder
	install          error
	heard            chan struct{} // closed: the engine has got a segment
}

func (w *world) steps(s *Socket) *steps {
	return &steps{w: w, port: s.Tuple().Local.Port(), heard: closedChannel()}
}

// closedChannel returns the Heard of steps whose engine gets segments at once.
func closedChannel() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func (s *steps) Park() error            { s.parked++; s.w.rule(s.port, dropAll); return nil }
func (s *steps) Heard() <-chan struct{} { return s.heard }
func (s *steps) Unpark()                { s.unparked++; s.w.rule(s.port, passAll) }
func (s *steps) Install(state tcp.State, p *Placeholder) error {
	if s.install != nil {
		return s.install
	}
	s.state, s.placeholder = state, p
	return nil
}

// take opens and takes c over.
func (w *world) take(c *net.TCPConn) *steps {
	w.Helper()
	s, err := Open(c)
	w.Must(err)
	st := w.steps(s)
	w.Must(s.Take(w.Context(), st, &w.grace))
	w.Cleanup(func() { st.placeholder.Close() })
	if st.parked != 1 || st.unparked != 0 {
		w.Fatalf("parked %d times, unparked %d times", st.parked, st.unparked)
	}
	w.Must(st.placeholder.Err())
	return st
}

// exchange demands that octets travel both ways between a and b.
func exchange(a, b net.Conn) error {
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		deadline := time.Now().Add(10 * time.Second)
		way[0].SetDeadline(deadline)
		way[1].SetDeadline(deadline)
		if _, err := io.WriteString(way[0], "still alive"); err != nil {
			return err
		}
		got := make([]byte, 11)
		if _, err := io.ReadFull(way[1], got); err != nil {
			return err
		}
		if string(got) != "still alive" {
			return fmt.Errorf("got %q", got)
		}
	}
	return nil
}

// wantErr demands an error of a kind.
func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}
