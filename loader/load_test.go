package loader_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/asavie/xdp"
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

func key(t *testing.T, remote, local string) bpf.FlowKey {
	t.Helper()
	k, err := bpf.NewFlowKey(netip.MustParseAddrPort(remote), netip.MustParseAddrPort(local), 0)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// knock connects from side B's kernel to port on side A. It returns the error after a
// short time at most.
func knock(t *testing.T, p *pair.Pair, port uint16) (err error) {
	t.Helper()
	netns.In(t, p, pair.B, func() error {
		from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Ends[pair.B].V4.Addr(), 40000))
		d := net.Dialer{Timeout: 150 * time.Millisecond, LocalAddr: from}
		var c net.Conn
		if c, err = d.Dial("tcp", netip.AddrPortFrom(p.Ends[pair.A].V4.Addr(), port).String()); err == nil {
			c.Close()
		}
		return nil
	})
	return err
}

// TestSteersToSocket loads on a real link and lets a real kernel send. The socket is
// that of another library.
func TestSteersToSocket(t *testing.T) {
	for _, mode := range []loader.Mode{loader.Native, loader.Generic} {
		t.Run(mode.String(), func(t *testing.T) {
			p := netns.Pair(t, pair.Config{})
			s := mustLoad(t, p, loader.Options{Generic: mode == loader.Generic})
			if s.Mode() != mode || s.ProgID() == 0 || s.Queues() != 1 {
				t.Errorf("mode %v, program %d, %d queues", s.Mode(), s.ProgID(), s.Queues())
			}
			// Without a flow the kernel refuses the connection.
			if err := knock(t, p, 4420); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("without a flow: %v, want a refusal", err)
			}
			k := key(t, "192.0.2.2:40000", "192.0.2.1:4420")
			id := bpf.NewFlowID(5, 9)
			if err := s.Insert(k, bpf.Flow{ID: id, Kind: bpf.KindRDMA, State: bpf.Park, Owner: bpf.NoOwner}); err != nil {
				t.Fatal(err)
			}
			// With a flow but without a socket nothing answers.
			if err := knock(t, p, 4420); !os.IsTimeout(err) {
				t.Errorf("with a flow and no socket: %v, want silence", err)
			}
			sock := openSocket(t, p)
			if err := s.SetSocket(0, sock.FD()); err != nil {
				t.Fatal(err)
			}
			if err := knock(t, p, 4420); !os.IsTimeout(err) {
				t.Errorf("with a socket: %v, want silence", err)
			}
			checkArrived(t, sock, id)
			stats, err := s.Stats()
			if err != nil {
				t.Fatal(err)
			}
			if stats[bpf.Steered]+stats[bpf.SteeredBare] == 0 || stats[bpf.NoSocket] == 0 || stats[bpf.NoFlow] == 0 {
				t.Errorf("counters: %v", stats)
			}
			if err := s.ClearSocket(0); err != nil {
				t.Error(err)
			}
			if err := s.Delete(k); err != nil {
				t.Fatal(err)
			}
			if err := knock(t, p, 4420); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("without the flow again: %v, want a refusal", err)
			}
		})
	}
}

func openSocket(t *testing.T, p *pair.Pair) *xdp.Socket {
	t.Helper()
	var sock *xdp.Socket
	netns.In(t, p, pair.A, func() (err error) {
		sock, err = xdp.NewSocket(p.Ends[pair.A].Index, 0, &xdp.SocketOptions{
			NumFrames: 64, FrameSize: 4096, FillRingNumDescs: 32,
			CompletionRingNumDescs: 32, RxRingNumDescs: 32, TxRingNumDescs: 32,
		})
		return err
	})
	t.Cleanup(func() { sock.Close() })
	sock.Fill(sock.GetDescs(32))
	return sock
}

// checkArrived checks that a SYN of the flow has arrived. It also checks the record if
// the driver has room for one.
func checkArrived(t *testing.T, sock *xdp.Socket, id bpf.FlowID) {
	t.Helper()
	got, _, err := sock.Poll(1000)
	if err != nil || got == 0 {
		t.Fatalf("nothing came through the socket: %v", err)
	}
	d := sock.Receive(got)[0]
	packet := sock.GetFrame(d)
	if len(packet) < 54 || binary.BigEndian.Uint16(packet[36:]) != 4420 {
		t.Fatalf("not the segment that was sent: % x", packet)
	}
	front := sock.GetFrame(xdp.Desc{Addr: d.Addr - bpf.RecordLen, Len: bpf.RecordLen})
	r, ok := bpf.ParseRecord(front)
	if !ok {
		t.Fatalf("no record in front of the packet: % x", front)
	}
	if r.Flow() != id || r.Kind() != bpf.KindRDMA {
		t.Errorf("record: flow %#x kind %v", uint32(r.Flow()), r.Kind())
	}
}

// TestFlowEntries: the flows of the two address families have room apart from each other, and
// are listed together.
func TestFlowEntries(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	s := mustLoad(t, p, loader.Options{MaxFlows: 2})
	a, b, c := key(t, "192.0.2.2:1", "192.0.2.1:9"), key(t, "192.0.2.2:2", "192.0.2.1:9"), key(t, "192.0.2.2:3", "192.0.2.1:9")
	six, none := key(t, "[2001:db8::2]:1", "[2001:db8::1]:9"), key(t, "[2001:db8::2]:2", "[2001:db8::1]:9")
	for i, k := range []bpf.FlowKey{a, b} {
		if err := s.Insert(k, bpf.Flow{ID: bpf.FlowID(i), Kind: bpf.KindBytes, State: bpf.Park}); err != nil {
			t.Fatal(err)
		}
	}
	rig.Says(t, s.Insert(a, bpf.Flow{}), loader.ErrFlowExists, "192.0.2.2:1")
	rig.Says(t, s.Insert(c, bpf.Flow{}), loader.ErrFlowsFull, "2 flows")
	if err := s.Insert(six, bpf.Flow{ID: 6, Kind: bpf.KindBytes, State: bpf.Park}); err != nil {
		t.Fatal(err)
	}
	for _, k := range []bpf.FlowKey{c, none} {
		rig.Says(t, s.Update(k, bpf.Flow{}), loader.ErrNoFlow, k.RemoteAddr().String())
		rig.Says(t, s.Delete(k), loader.ErrNoFlow)
	}
	f, err := s.Lookup(b)
	if err != nil || f.PID != uint32(os.Getpid()) || f.Created == 0 || f.State != bpf.Park {
		t.Fatalf("%+v, %v", f, err)
	}
	created := f.Created
	f.State, f.Owner = bpf.Live, 7
	if err := s.Update(b, f); err != nil {
		t.Fatal(err)
	}
	seen := map[bpf.FlowKey]bpf.Flow{}
	if err := s.Flows(func(k bpf.FlowKey, f bpf.Flow) bool { seen[k] = f; return true }); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 3 || seen[six].ID != 6 || seen[b].State != bpf.Live || seen[b].Owner != 7 || seen[b].Created != created {
		t.Errorf("flows: %v", seen)
	}
	for n := 0; n <= 3; n++ { // a walk ends where it is told to
		left := n
		if err := s.Flows(func(bpf.FlowKey, bpf.Flow) bool { left--; return left > 0 }); err != nil || left != 0 && n != 0 {
			t.Errorf("a walk to flow %d: %d are missing, %v", n, left, err)
		}
	}
	for _, k := range []bpf.FlowKey{a, b, six} {
		if err := s.Delete(k); err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.Lookup(b)
	rig.Says(t, err, loader.ErrNoFlow)
	// The removed flows have freed their room.
	if err := s.Insert(c, bpf.Flow{}); err != nil {
		t.Error(err)
	}
}

func TestSocketSlots(t *testing.T) {
	p := netns.Pair(t, pair.Config{Queues: 2})
	s := mustLoad(t, p, loader.Options{})
	if s.Queues() != 2 {
		t.Fatalf("%d slots for 2 queues", s.Queues())
	}
	if err := s.SetSocket(2, 0); err == nil {
		t.Error("a slot beyond the last was filled")
	}
	if err := s.SetSocket(0, 0); err == nil {
		t.Error("something that is not an AF_XDP socket was taken")
	}
	if err := s.ClearSocket(1); err != nil {
		t.Errorf("clear an empty slot: %v", err)
	}
	_, err := load(p, loader.Options{Queues: 1})
	if err == nil {
		t.Error("loaded with fewer slots than queues")
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	for range 3 {
		s := mustLoad(t, p, loader.Options{})
		id := s.ProgID()
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if !gone(id) {
			t.Errorf("program %d is still in the kernel", id)
		}
	}
}

// gone reports whether a program has left the kernel. The kernel needs a moment for
// that.
func gone(id uint32) bool {
	for range 200 {
		prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
		if errors.Is(err, os.ErrNotExist) {
			return true
		}
		if err == nil {
			prog.Close()
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}

func TestNoLink(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	_, err := load(p, loader.Options{Link: "eth77"})
	rig.Says(t, err, loader.ErrNoLink, "eth77", p.Ends[pair.A].Name)
	_, err = load(p, loader.Options{Link: "a-name-that-is-too-long-for-an-interface"})
	rig.Says(t, err, loader.ErrNoLink)
}

func TestNoNative(t *testing.T) {
	need.XDP(t)
	p := netns.Pair(t, pair.Config{})
	// Otherwise the loopback's MTU would be the first error.
	netns.In(t, p, pair.A, func() error { return setMTU("lo", 1500) })
	_, err := load(p, loader.Options{Link: "lo"})
	rig.Says(t, err, loader.ErrNoNative, "lo", "generic")
	netns.In(t, p, pair.A, func() error { return loader.SetGRO("lo", false) })
	s, err := load(p, loader.Options{Link: "lo", Generic: true})
	if err != nil {
		t.Fatalf("generic: %v", err)
	}
	s.Close()
}

// TestLongest checks at several MTUs that a socket gets each packet in one piece.
func TestLongest(t *testing.T) {
	need.XDP(t)
	for _, c := range []struct{ mtu, chunk, native, generic int }{
		{1500, 2048, 1792, 1792},
		{3506, 4096, 3520, 3840},
		{9000, 4096, 3520, 3840},
		{65535, 2048, 1792, 1792},
	} {
		p := netns.Pair(t, pair.Config{MTU: c.mtu})
		for generic, want := range map[bool]int{false: c.native, true: c.generic} {
			s := mustLoad(t, p, loader.Options{Generic: generic})
			if got := s.Longest(c.chunk); got != want {
				t.Errorf("MTU %d, chunks of %d, generic %v: %d octets, want %d", c.mtu, c.chunk, generic, got, want)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestGenericBehindReceiveOffload(t *testing.T) {
	need.XDP(t)
	p := netns.Pair(t, pair.Config{})
	name := p.Ends[pair.A].Name
	netns.In(t, p, pair.A, func() error { return loader.SetGRO(name, true) })
	_, err := load(p, loader.Options{Generic: true})
	rig.Says(t, err, loader.ErrOffload, "ethtool -K "+name+" gro off")
	mustLoad(t, p, loader.Options{}).Close()
	netns.In(t, p, pair.A, func() error { return loader.SetGRO(name, false) })
	mustLoad(t, p, loader.Options{Generic: true})
}

func TestTooFewQueues(t *testing.T) {
	need.XDP(t)
	p := netns.Pair(t, pair.Config{Queues: 2})
	netns.In(t, p, pair.A, func() error { return loader.SetChannels(p.Ends[pair.A].Name, 1, 2) })
	_, err := load(p, loader.Options{})
	rig.Says(t, err, loader.ErrChannels, "1 queues", "ethtool -L")
}

func TestNoPermission(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	o := startOther(t, p, pair.A, "load without capabilities")
	for _, want := range []string{"CAP_BPF", "CAP_NET_ADMIN", "not permitted"} {
		rig.Says(t, errors.New(o.said), nil, want)
	}
}

// foreign attaches a program with this name to side A. It is not stag's.
func foreign(t *testing.T, p *pair.Pair, name string) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	netns.In(t, p, pair.A, func() error {
		hook, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: p.Ends[pair.A].Index, Flags: link.XDPGenericMode})
		if err == nil {
			t.Cleanup(func() { hook.Close() })
		}
		return err
	})
}

func TestForeignProgram(t *testing.T) {
	need.XDP(t)
	p := netns.Pair(t, pair.Config{})
	foreign(t, p, "somebody")
	_, err := load(p, loader.Options{})
	rig.Says(t, err, loader.ErrForeignProgram, `"somebody"`, "id ", p.Ends[pair.A].Name)
}

// A program without a name is another program. Root is not told to run as root.
func TestForeignProgramWithoutName(t *testing.T) {
	need.XDP(t)
	p := netns.Pair(t, pair.Config{})
	foreign(t, p, "")
	_, err := load(p, loader.Options{})
	rig.Says(t, err, loader.ErrForeignProgram, "another XDP program", "id ", p.Ends[pair.A].Name)
}

func TestSecondLoad(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	mustLoad(t, p, loader.Options{})
	_, err := load(p, loader.Options{})
	rig.Says(t, err, loader.ErrAlreadyLoaded, fmt.Sprintf("pid %d", os.Getpid()))
	_, err = load(p, loader.Options{Generic: true})
	rig.Says(t, err, loader.ErrAlreadyLoaded)
}

func TestSecondLoadOfAnotherProcessThatDies(t *testing.T) {
	need.XDP(t)
	p := netns.Pair(t, pair.Config{})
	o := startOther(t, p, pair.A, "load")
	if o.said != "ready" {
		t.Fatal(o.said)
	}
	_, err := load(p, loader.Options{})
	rig.Says(t, err, loader.ErrAlreadyLoaded, fmt.Sprintf("pid %d", o.Process.Pid))
	o.kill(t)
	mustLoad(t, p, loader.Options{}) // no program has stayed attached
}

// TestConcurrentFlows lets many goroutines insert and delete flows while others list
// the flows and read the counters.
func TestConcurrentFlows(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	s := mustLoad(t, p, loader.Options{MaxFlows: 1024})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 100 {
				k := bpf.FlowKey{Family: 4, RemotePort: [2]byte{byte(g), byte(i)}}
				if err := s.Insert(k, bpf.Flow{ID: bpf.FlowID(i)}); err != nil {
					t.Error(err)
				}
				if err := s.Flows(func(bpf.FlowKey, bpf.Flow) bool { return i%10 == 0 }); err != nil {
					t.Error(err)
				}
				if _, err := s.Stats(); err != nil {
					t.Error(err)
				}
				if err := s.Delete(k); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.Flows(func(k bpf.FlowKey, _ bpf.Flow) bool { t.Errorf("left: %v", k); return true }); err != nil {
		t.Error(err)
	}
}

// TestLinkGoesAway removes the interface under the program.
func TestLinkGoesAway(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	s := mustLoad(t, p, loader.Options{})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Insert(bpf.FlowKey{Family: 4}, bpf.Flow{}); err != nil {
		t.Errorf("the maps live as long as the Steering: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
