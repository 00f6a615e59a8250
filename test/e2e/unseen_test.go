package e2e

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
)

// These tests make connections whose segments do not pass the program. Such a connection stays with the kernel. The
// take-over returns the reason, and both directions continue.

// nft runs an nft script in a side's namespace.
func (r *rig) nft(side pair.Side, script string) {
	r.Helper()
	need.Tool(r.TB, "nft")
	r.in(side, func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(script)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return nil
	})
}

// ip runs the program ip in a side's namespace.
func (r *rig) ip(side pair.Side, args ...string) {
	r.Helper()
	need.Tool(r.TB, "ip")
	r.in(side, func() error {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	})
}

// staysKernels tries to take the connection over. The take-over must be refused with all the words in the error. The
// kernel's connection must have lost nothing: neither octets that were unread or unacknowledged before, nor many later
// ones.
func (r *rig) staysKernels(our, peer *net.TCPConn, o nic.Options, words ...string) {
	r.Helper()
	const total = 1 << 20
	k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: total}).start()
	before := r.talkUntil(our, total/8, total)
	time.Sleep(50 * time.Millisecond) // the peer's window is full, so the peer is silent
	settings, left := liveness(r, our), r.traces()
	_, err := r.nic.Take(r.Ctx(), our, octets.NewSink(0, 0), o)
	if !errors.Is(err, handoff.ErrUnseen) {
		r.Fatalf("the take-over says %v", err)
	}
	for _, word := range append(words, "KernelPort") {
		if !strings.Contains(err.Error(), word) {
			r.Errorf("the error does not say %q: %v", word, err)
		}
	}
	r.unchanged(left)
	if now := liveness(r, our); now != settings {
		r.Errorf("keepalive, its idle time and the user timeout are %v, they were %v", now, settings)
	}
	after := (&talk{conn: our, out: seedOurs, in: seedTheirs, send: total, halfShut: true}).after(before)
	r.Must(<-k.wrote)
	r.Must(peer.CloseWrite())
	for _, end := range []chan error{after.wrote, after.read, k.read} {
		r.Must(<-end)
	}
	if ours, theirs := after.received.Load(), k.received.Load(); ours != total || theirs != total {
		r.Fatalf("%d and %d octets came through the kernel, want %d", ours, theirs, total)
	}
}

// TestTranslatedStaysKernels lets the kernel translate the addresses of a connection that leaves this host, as
// kube-proxy does with the address of a Service. The application dials 203.0.113.9, and the packets have the peer's own
// address.
func TestTranslatedStaysKernels(t *testing.T) {
	r := newRig(t, setup{})
	r.ip(ours, "route", "add", "203.0.113.9", "via", r.addr(theirs, false), "dev", r.pair.Ends[ours].Name)
	r.nft(ours, "add table ip x\nadd chain ip x o { type nat hook output priority -100; }\n"+
		"add rule ip x o ip daddr 203.0.113.9 dnat to "+r.addr(theirs, false)+"\n")
	l := r.listen(theirs, false)
	var c net.Conn
	r.in(ours, func() (err error) {
		d := net.Dialer{Timeout: 10 * time.Second, Control: r.nic.Control}
		d.SetMultipathTCP(false)
		c, err = d.Dial("tcp4", fmt.Sprintf("203.0.113.9:%d", l.Addr().(*net.TCPAddr).Port))
		return err
	})
	t.Cleanup(func() { c.Close() })
	peer := r.accept(l)
	r.staysKernels(c.(*net.TCPConn), peer, nic.DefaultOptions, "reached the kernel")
}

// TestOtherWayBackStaysKernels lets the peer's packets come back over a second cable, which has no program.
func TestOtherWayBackStaysKernels(t *testing.T) {
	for _, accept := range []bool{false, true} {
		w := way{accept: accept}
		t.Run(w.String(), func(t *testing.T) {
			r := newRig(t, setup{})
			r.secondCable()
			r.otherWayBack()
			our, peer := r.connect(w)
			r.staysKernels(our, peer, nic.DefaultOptions, "reached the kernel")
		})
	}
}

// secondCable connects the two sides by q0 and q1, 198.18.0.1 and .2. Both sides accept packets from either cable.
func (r *rig) secondCable() {
	r.Helper()
	r.cable("q0", "q1", "198.18.0")
}

// cable connects the two sides by one more cable, whose ends have the addresses .1 and .2
// of a network of 24 bits.
func (r *rig) cable(here, there, network string) {
	r.Helper()
	need.Tool(r.TB, "sleep")
	process := exec.Command("sleep", "300") // names the namespace
	r.in(theirs, process.Start)
	defer func() {
		r.Check(process.Process.Kill())
		process.Wait()
	}()
	r.ip(ours, "link", "add", here, "type", "veth", "peer", "name", there, "netns", fmt.Sprint(process.Process.Pid))
	for side, end := range []string{here, there} {
		side := pair.Side(side)
		r.ip(side, "link", "set", end, "up")
		r.ip(side, "addr", "add", fmt.Sprintf("%s.%d/24", network, 1+int(side)), "dev", end)
		for _, name := range []string{"all", end, r.pair.Ends[side].Name} {
			r.in(side, func() error { return netns.Sysctl("ipv4/conf/"+name+"/rp_filter", "0") })
		}
	}
}

// otherWayBack makes the peer answer over the second cable.
func (r *rig) otherWayBack() {
	r.Helper()
	r.ip(theirs, "route", "add", r.addr(ours, false)+"/32", "via", "198.18.0.1", "dev", "q1", "src", r.addr(theirs, false))
}

// TestTagTakenOffStaysKernels lets packets arrive without the flow's VLAN tag, as from a NIC that removes tags.
func TestTagTakenOffStaysKernels(t *testing.T) {
	r := newRig(t, setup{nic: nic.Config{VLAN: vlan}})
	our, peer := r.connect(way{})
	r.staysKernels(our, peer, nic.DefaultOptions, "reached the kernel", "VLAN")
}

// TestRefusedResponderKeepsItsWords checks octets that a responder has written while its segments were parked. They
// reach the peer once, whether the connection is taken over or not.
func TestRefusedResponderKeepsItsWords(t *testing.T) {
	r := newRig(t, setup{})
	r.secondCable()
	r.otherWayBack()
	our, peer := r.connect(way{accept: true})
	o := nic.DefaultOptions
	o.Parked = func() error {
		_, err := our.Write([]byte("words"))
		return err
	}
	_, err := r.nic.Take(r.Ctx(), our, octets.NewSink(0, 0), o)
	if !errors.Is(err, handoff.ErrUnseen) {
		t.Fatalf("the take-over says %v", err)
	}
	r.Must(our.CloseWrite())
	read := make([]byte, 16)
	n, err := peer.Read(read)
	r.Must(err)
	if string(read[:n]) != "words" {
		t.Errorf("the peer got %q", read[:n])
	}
	r.clean()
}

// TestSilentPeerStaysKernels drops all packets of the peer. The take-over probes several times and gives up. The
// connection continues when the path works again.
func TestSilentPeerStaysKernels(t *testing.T) {
	r := newRig(t, setup{})
	our, peer := r.connect(way{})
	r.mute(peer)
	_, err := r.nic.Take(r.Ctx(), our, octets.NewSink(0, 0), nic.DefaultOptions)
	if !errors.Is(err, handoff.ErrUnseen) {
		t.Fatalf("the take-over says %v", err)
	}
	if n, err := r.asked(); err != nil || n < 3 {
		t.Errorf("the peer, whose answers were dropped, was asked %d times; %v", n, err)
	}
	r.Must(r.unmute())
	r.clean()
	k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: 1 << 20, halfShut: true}).start()
	o := (&talk{conn: our, out: seedOurs, in: seedTheirs, send: 1 << 20, halfShut: true}).start()
	for _, end := range []chan error{k.wrote, k.read, o.wrote, o.read} {
		r.Must(<-end)
	}
}

// TestLostAnswersAreAskedForAgain drops the peer's first answers. The connection is still taken over, in both roles.
func TestLostAnswersAreAskedForAgain(t *testing.T) {
	for _, w := range ways[:2] {
		t.Run(w.String(), func(t *testing.T) {
			r := newRig(t, setup{})
			our, peer := r.connect(w)
			r.mute(peer)
			freed := make(chan error, 1)
			go func() {
				n, err := r.asked()
				for ; err == nil && n < 2; n, err = r.asked() {
					time.Sleep(5 * time.Millisecond)
				}
				freed <- errors.Join(err, r.unmute())
			}()
			f := r.take(our, octets.NewEcho())
			r.Must(<-freed)
			r.pingPong(peer)
			r.Must(f.Placeholder().Err())
		})
	}
}

// mute drops the segments that c's host, the peer, sends on the connection. It counts the segments that this host
// receives.
func (r *rig) mute(c *net.TCPConn) {
	r.Helper()
	port := c.LocalAddr().(*net.TCPAddr).Port
	r.nft(theirs, fmt.Sprintf("add table ip mute\n"+
		"add chain ip mute o { type filter hook output priority 0; }\nadd rule ip mute o tcp sport %d drop\n"+
		"add chain ip mute i { type filter hook input priority 0; }\nadd rule ip mute i tcp dport %d counter\n", port, port))
}

func (r *rig) unmute() error {
	return r.pair.Do(theirs, func() error { return exec.Command("nft", "delete", "table", "ip", "mute").Run() })
}

// asked returns how many segments the muted peer has received. Any goroutine may call it.
func (r *rig) asked() (n uint64, err error) {
	var out []byte
	err = r.pair.Do(theirs, func() (err error) {
		out, err = exec.Command("nft", "list", "chain", "ip", "mute", "i").Output()
		return err
	})
	_, after, _ := strings.Cut(string(out), "counter packets ")
	if err == nil {
		_, err = fmt.Sscan(after, &n)
	}
	return n, err
}

// TestTinySegmentsStayKernels checks that a peer with an MSS below Linux's minimum is detected before the kernel gives
// up the connection.
func TestTinySegmentsStayKernels(t *testing.T) {
	for _, mss := range []string{"1", "40"} {
		t.Run(mss, func(t *testing.T) {
			r := newRig(t, setup{})
			r.ip(theirs, "route", "add", r.addr(ours, false)+"/32", "dev", r.pair.Ends[theirs].Name, "advmss", mss)
			our, peer := r.connect(way{})
			left := r.traces()
			_, err := r.nic.Take(r.Ctx(), our, octets.NewEcho(), nic.DefaultOptions)
			var lost *handoff.LostError
			if !errors.Is(err, handoff.ErrTiny) || errors.As(err, &lost) {
				t.Fatalf("the take-over says %v", err)
			}
			r.unchanged(left)
			k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: 4 << 10, halfShut: true}).start()
			o := (&talk{conn: our, out: seedOurs, in: seedTheirs, send: 4 << 10, halfShut: true}).start()
			for _, end := range []chan error{k.wrote, k.read, o.wrote, o.read} {
				r.Must(<-end)
			}
		})
	}
}

// TestPolicedStaysKernels has an IPsec policy that requires the connection's packets to be encrypted. They must not
// leave in clear text.
func TestPolicedStaysKernels(t *testing.T) {
	for _, dir := range []string{"out", "in"} {
		t.Run(dir, func(t *testing.T) {
			r := newRig(t, setup{})
			our, peer := r.connect(way{})
			src, dst := r.addr(ours, false), r.addr(theirs, false)
			if dir == "in" {
				src, dst = dst, src
			}
			policy := []string{"src", src, "dst", dst, "dir", dir}
			r.ip(ours, append(append([]string{"xfrm", "policy", "add"}, policy...), "tmpl", "src", src, "dst", dst, "proto", "esp", "mode", "transport")...)
			_, err := r.nic.Take(r.Ctx(), our, octets.NewEcho(), nic.DefaultOptions)
			if !errors.Is(err, loader.ErrPolicy) {
				t.Fatalf("the take-over says %v", err)
			}
			r.clean()
			r.ip(ours, append([]string{"xfrm", "policy", "delete"}, policy...)...)
			r.take(our, octets.NewEcho())
			r.pingPong(peer)
		})
	}
}

// TestStraysAreReported lets the peer's segments take another path after the take-over. The interface counts them, and
// its log names the flow once.
func TestStraysAreReported(t *testing.T) {
	var said lines
	r := newRig(t, setup{nic: nic.Config{Log: slog.New(slog.NewTextHandler(&said, nil))}})
	r.secondCable()
	our, peer := r.connect(way{})
	f := r.take(our, octets.NewEcho())
	r.pingPong(peer)
	if c := r.nic.Counters(); c.Strays != 0 {
		t.Fatalf("%d strays before anything went astray", c.Strays)
	}
	r.otherWayBack()
	_, err := peer.Write([]byte("nobody hears this"))
	r.Must(err)
	r.Eventually("the strays are counted", func() bool { return r.nic.Counters().Strays >= 3 })
	const words = "past the XDP program"
	if n := said.count(words); n != 1 {
		t.Errorf("the log has %d lines about it, want 1:\n%s", n, said.String())
	}
	r.ip(theirs, "route", "del", r.addr(ours, false)+"/32")
	r.Eventually("the connection goes on", func() bool {
		info, err := f.Info(r.Ctx())
		return err == nil && info.Unread == 0 && r.stats(f).OctetsIn == uint64(len("ping")+len("nobody hears this"))
	})
}

// lines is a log that a test reads.
type lines struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(b)
}

// count returns how many lines contain words.
func (l *lines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.Builder.String(), words)
}
