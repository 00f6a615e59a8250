package faults

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/packet"
)

// burst is how many frames a cannon sends at a time.
const burst = 64

// These are rates in frames per second. The kernel answers each stray with a reset. This costs both hosts far more than
// an engine needs to refuse a forged segment. A higher rate would only measure the resets.
const (
	forgedRate = 100_000
	strayRate  = 30_000
)

// cannon sends frames from the intruder's interface.
type cannon struct {
	*rig
	queue *afxdp.Queue
	lent  [burst]port.Frame
}

func (r *rig) newCannon() *cannon {
	r.Helper()
	config := afxdp.Config{IfName: r.Intruder.Name}
	size, err := config.RegionSize()
	r.Must(err)
	arena, err := afxdp.NewArena(size)
	r.Must(err)
	r.Cleanup(func() { r.Check(arena.Close()) })
	region, err := arena.Cut(size)
	r.Must(err)
	c := &cannon{rig: r}
	r.Must(r.DoIntruder(func() (err error) {
		c.queue, err = afxdp.Open(config, region)
		return err
	}))
	r.Cleanup(func() { r.Check(c.queue.Close()) })
	return c
}

// fire sends n frames at rate. write writes the next frame into its argument.
func (c *cannon) fire(n int, rate time.Duration, write func(b []byte) int) {
	c.Helper()
	for next := time.Now(); n > 0; next = next.Add(burst * time.Second / rate) {
		time.Sleep(time.Until(next))
		lent := c.lent[:c.queue.Take(c.lent[:min(n, len(c.lent))])]
		for i := range lent {
			lent[i].Len = uint32(write(c.queue.Bytes(lent[i])))
		}
		n -= c.queue.Send(lent)
		c.queue.Free(lent)
		c.Must(c.queue.Flush())
	}
}

// foreign writes a frame of a protocol that no host handles.
func (c *cannon) foreign(b []byte) int {
	b = b[:60]
	clear(b[copy(b, c.Ends[ours].MAC):])
	copy(b[6:], c.Intruder.MAC)
	b[12], b[13] = 0x88, 0xb5 // EtherType for local experiments (IEEE 802)
	return len(b)
}

// mould is a segment without its ports and numbers.
type mould struct {
	frame []byte
	sum   uint32 // of all words of the pseudo-header and the segment
}

// These are offsets in a frame with IPv4 and without options.
const (
	mouldPort = 34 // port of the sender
	mouldSeq  = 38
	mouldAck  = 42
	mouldSum  = 50
)

func newMould(p packet.TCP) mould {
	m := mould{frame: p.Bytes()}
	m.sum = uint32(^binary.BigEndian.Uint16(m.frame[mouldSum:]))
	m.sum += uint32(^binary.BigEndian.Uint16(m.frame[mouldPort:]))
	return m
}

// cast writes a segment with a correct checksum.
func (m mould) cast(b []byte, source uint16, seq, ack uint32) int {
	n := copy(b, m.frame)
	binary.BigEndian.PutUint16(b[mouldPort:], source)
	binary.BigEndian.PutUint32(b[mouldSeq:], seq)
	binary.BigEndian.PutUint32(b[mouldAck:], ack)
	sum := m.sum + uint32(source) + seq>>16 + seq&0xffff + ack>>16 + ack&0xffff
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(b[mouldSum:], ^uint16(sum))
	return n
}

// forger makes segments for a connection as an attacker who knows nearly everything about it and gets one field wrong.
type forger struct {
	random                                *rand.Rand
	seen                                  atomic.Pointer[tcp.Info] // a recent snapshot of the connection
	source                                uint16                   // the peer's port
	reset, resetAll, syn, syn2, text, ack mould
}

// newForger makes a forger for the connection between local, which it attacks, and remote.
func newForger(local, remote net.Addr, link packet.Link) *forger {
	at, as := local.(*net.TCPAddr).AddrPort(), remote.(*net.TCPAddr).AddrPort()
	with := func(flags string, octets int) mould {
		return newMould(packet.TCP{
			Link: link, IP: packet.IP{Src: as.String(), Dst: at.String()},
			Flags: flags, Window: 1000, Payload: make([]byte, octets),
		})
	}
	return &forger{
		random: rand.New(rand.NewPCG(1, 2)), source: as.Port(),
		reset: with("R", 0), resetAll: with("RA", 0), syn: with("S", 0), syn2: with("SA", 0),
		text: with("PA", 500), ack: with("A", 0),
	}
}

// look takes snapshots of the connection until it ends or ctx does.
func (f *forger) look(ctx context.Context, flow *nic.Flow) {
	for {
		info, err := flow.Info(ctx)
		if err != nil {
			return
		}
		f.seen.Store(&info)
		time.Sleep(300 * time.Microsecond)
	}
}

// far is more than a connection can have sent or received since the last snapshot.
const far = 64 << 20

// aimed writes a segment of the connection. Within the window it avoids RCV.NXT: full segments, and windows, are
// multiples of four octets.
func (f *forger) aimed(b []byte) int { return f.write(b, f.source) }

// stray writes a segment of a connection that does not exist.
func (f *forger) stray(b []byte) int {
	source := f.source
	for source == f.source {
		source = uint16(1024 + f.random.IntN(60000))
	}
	return f.write(b, source)
}

func (f *forger) write(b []byte, source uint16) int {
	seen := f.seen.Load()
	next, una, sent := uint32(seen.RcvNxt), uint32(seen.SndUna), uint32(seen.SndNxt)
	// The window moves while the segment is in flight. The number must be inside the window at its arrival.
	inside := next + 1 + 4*(f.random.Uint32()%max(seen.RcvWnd, 1))
	anywhere := next + far + f.random.Uint32()%(1<<31-far)
	never := sent + far + f.random.Uint32()%(1<<30) // acknowledges what was not sent
	switch f.random.IntN(9) {
	case 0:
		return f.reset.cast(b, source, inside, 0)
	case 1:
		return f.resetAll.cast(b, source, anywhere, una)
	case 2:
		return f.syn.cast(b, source, inside, 0)
	case 3:
		return f.syn2.cast(b, source, anywhere, una)
	case 4:
		return f.text.cast(b, source, inside, never)
	case 5:
		return f.text.cast(b, source, anywhere, una)
	case 6: // received before
		return f.text.cast(b, source, next-1000-f.random.Uint32()%(64<<10), una)
	case 7:
		return f.ack.cast(b, source, inside, una-1-f.random.Uint32()%(1<<30))
	}
	return f.ack.cast(b, source, inside, never)
}

// phase is what was transferred during a part of the test.
type phase struct {
	octets uint64
	took   time.Duration
}

func (p phase) rate() float64 { return float64(p.octets) / p.took.Seconds() }

func (p phase) String() string {
	return fmt.Sprintf("%.0f MB/s", p.rate()/1e6)
}

// during runs f, and adds to ph the octets that return to p meanwhile.
func (p *plain) during(ph *phase, f func()) {
	before, begin := p.received.Load(), time.Now()
	f()
	ph.took += time.Since(begin)
	ph.octets += p.received.Load() - before
}

// TestFlood sends 300,000 forged segments to a running connection, and as many to connections that do not exist. The
// connection transfers octets to an echo and back the whole time, and all of them are right. For comparison the test
// floods with the same number of frames of an unknown protocol, in turns. Sending and carrying those costs as much, on
// the same processors. The connection's rate must be at least half of its rate during that flood. Without STAG_LONG=1
// the numbers are a third.
func TestFlood(t *testing.T) {
	const rounds = 8
	each := 100_000
	if os.Getenv(longVariable) != "" {
		each = 300_000
	}
	r := newRig(t, Config{Intruder: true})
	r.open()
	r.setSysctl(theirs, "ipv4/tcp_timestamps", "0") // timestamps would expose the forger
	our, conn := r.connect(false)
	peer := (&plain{conn: conn, send: 1 << 50, out: seedTheirs, in: seedTheirs}).start()
	ulp := octets.NewEcho()
	const long = 4 * patience
	r.Must(conn.SetDeadline(time.Now().Add(long)))
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	flow, err := r.nic.Take(ctx, our, ulp, nic.DefaultOptions)
	r.Must(err)
	link := packet.Link{SrcMAC: r.Intruder.MAC.String(), DstMAC: r.Ends[ours].MAC.String()}
	gun, forger := r.newCannon(), newForger(conn.RemoteAddr(), conn.LocalAddr(), link)
	r.Eventually("the echo runs", func() bool { return peer.received.Load() > 16<<20 })

	var silence, harmless, aimed, stray phase
	looking, stop := context.WithCancel(ctx)
	defer stop()
	go forger.look(looking, flow)
	r.Eventually("the forger knows the connection", func() bool { return forger.seen.Load() != nil })
	fire := func(rate time.Duration, write func([]byte) int) func() {
		return func() { gun.fire(each/rounds, rate, write) }
	}
	for range rounds {
		peer.during(&harmless, fire(forgedRate, gun.foreign))
		peer.during(&aimed, fire(forgedRate, forger.aimed))
		peer.during(&stray, fire(strayRate, forger.stray))
		peer.during(&silence, func() { time.Sleep(harmless.took / rounds) })
	}

	stop()
	peer.stop.Store(true)
	r.Must(<-peer.wrote)
	r.Must(conn.CloseWrite())
	r.Must(<-peer.read)
	r.Wait(ulp.Done(), "the end of our side")
	r.Must(ulp.Err())
	if peer.sent.Load() != peer.received.Load() {
		t.Errorf("%d octets were sent, and %d came back", peer.sent.Load(), peer.received.Load())
	}
	drops, resets := r.drops(), r.kernelCounter(ours, "OutRsts")
	t.Logf("%d frames of each kind; %v in silence, %v with harmless frames (%.0f a second), %v with forged segments (%.0f), %v with strays (%.0f)",
		each, silence, harmless, float64(each)/harmless.took.Seconds(), aimed, float64(each)/aimed.took.Seconds(), stray, float64(each)/stray.took.Seconds())
	t.Logf("not used: %v; the kernel answered %d strays; %+v", drops, resets, flow.Final())
	if s := flow.Final(); s.ResetsIn != 0 || s.ResetsOut != 0 {
		t.Errorf("a forged segment had an effect: %+v", s)
	}
	var refused uint64
	for _, n := range drops {
		refused += n
	}
	if refused < uint64(each)/2 || resets < uint64(each)/4 {
		t.Errorf("of %d forged segments %d arrived, of as many strays the kernel answered %d: the flood ran dry", each, refused, resets)
	}
	for _, reason := range []tcp.Drop{tcp.DropRSTChallenged, tcp.DropSYN, tcp.DropBadACK} {
		if n := drops["tcp "+reason.String()]; n < uint64(each)/1000 {
			t.Errorf("%d segments were refused as %v, want %d or more", n, reason, each/1000)
		}
	}
	for what, p := range map[string]phase{"forged segments": aimed, "strays": stray} {
		if p.rate() < harmless.rate()/2 {
			t.Errorf("%v with %s, %v with as many frames that mean nothing", p, what, harmless)
		}
	}
}
