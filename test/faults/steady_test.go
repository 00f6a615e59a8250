package faults

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
)

const (
	endless    = 1 << 40 // octets, more than a test transfers
	steadyRate = 1e9     // bits a second
)

// steady is one connection over a long cable of 1 Gb/s. It runs until the test ends.
type steady struct {
	*match
	trip    time.Duration
	arrived func() uint64 // octets, at the receiving end
	sender  *net.TCPConn  // if the kernel is the sender
}

// newSteady makes the cable. Both kernels may buffer 64 MiB. Their default for senders, 4 MiB, is less than the
// capacity of a round trip of 100 ms.
func newSteady(t *testing.T, trip time.Duration) *steady {
	t.Helper()
	r := newRig(t, Config{Delay: trip / 2, Rate: steadyRate, MTU: 3506})
	for _, side := range []pair.Side{ours, theirs} {
		r.setSysctl(side, "ipv4/tcp_rmem", "4096 131072 67108864")
		r.setSysctl(side, "ipv4/tcp_wmem", "4096 16384 67108864")
	}
	r.both(Plan{Late: Percent(100)})
	return &steady{match: &match{rig: r}, trip: trip}
}

// kernels uses the kernel's TCP at both ends.
func (s *steady) kernels() {
	our, peer := s.connect(false)
	s.congestion(our, "cubic")
	(&plain{conn: our, send: endless, out: seedOurs, in: seedTheirs}).start()
	s.peer = (&plain{conn: peer, in: seedOurs}).start()
	s.arrived, s.sender = s.peer.received.Load, our
}

func (s *steady) weSend() {
	s.offloaded(octets.Plan{Send: endless, Seed: seedOurs, PeerSeed: seedTheirs, Hold: true})
	s.arrived = s.peer.received.Load
}

func (s *steady) kernelSends() {
	s.offloaded(octets.Plan{Expect: endless, Seed: seedOurs, PeerSeed: seedTheirs, Hold: true})
	s.arrived, s.sender = s.ulp.Received, s.peer.conn
}

// offloaded uses stag's TCP at one end and the kernel's at the other.
func (s *steady) offloaded(p octets.Plan) {
	s.open()
	our, peer := s.connect(false)
	s.congestion(our, "cubic")
	s.congestion(peer, "cubic")
	s.peer = (&plain{conn: peer, send: p.Expect, out: seedTheirs, in: seedOurs}).start()
	s.ulp = octets.NewTransfer(p)
	var err error
	s.flow, err = s.nic.Take(s.Ctx(), our, s.ulp, nic.DefaultOptions)
	s.Must(err)
}

// rate returns the Mb/s that arrive during d, after an equal time for slow start. It prints the limit of the sender.
func (s *steady) rate(d time.Duration) float64 {
	s.Helper()
	time.Sleep(d)
	begin, before, was := time.Now(), s.arrived(), s.info()
	time.Sleep(d)
	rate := 8 * float64(s.arrived()-before) / time.Since(begin).Seconds() / 1e6
	is := s.info()
	busy := max(1, float64(is.Busy_time-was.Busy_time))
	window, buffer := float64(is.Rwnd_limited-was.Rwnd_limited)/busy, float64(is.Sndbuf_limited-was.Sndbuf_limited)/busy
	if s.sender != nil {
		s.Logf("the sending kernel: congestion window %d KiB, round trip %v, %d and then %d segments sent again; waits for the receive window %.2f of the time, for its buffer %.2f",
			is.Snd_cwnd*is.Snd_mss>>10, time.Duration(is.Rtt)*time.Microsecond, was.Total_retrans, is.Total_retrans-was.Total_retrans, window, buffer)
	}
	if s.flow != nil {
		i, err := s.flow.Info(s.Ctx())
		s.Must(err)
		s.Logf("our end: congestion window %d KiB, its peer's receive window %d KiB, receive window %d KiB, round trip %v", i.Cwnd>>10, i.SndWnd>>10, i.RcvWnd>>10, i.SRTT)
		drops := s.drops()
		maps.DeleteFunc(drops, func(_ string, n uint64) bool { return n == 0 })
		s.Logf("our end has dropped %v", drops)
		// Otherwise the sender waits because the octets in the cable fill the window.
		if least := min(1.5*rate*1e6, steadyRate) / 8 * s.trip.Seconds(); window > 0.1 && float64(i.RcvWnd) < least {
			s.Errorf("the kernel waits for our window, which is %d octets: for %.0f Mb/s on this way it needs %.0f", i.RcvWnd, rate, least)
		}
	}
	return rate
}

// info returns the sending kernel's information about the connection; zero if the kernel does not send.
func (s *steady) info() *unix.TCPInfo {
	s.Helper()
	i := &unix.TCPInfo{}
	if s.sender == nil {
		return i
	}
	raw, err := s.sender.SyscallConn()
	s.Must(err)
	var failed error
	err = raw.Control(func(fd uintptr) { i, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	s.Must(errors.Join(err, failed))
	return i
}

// TestSteadyLongCable compares one connection between stag's TCP and the kernel's with one between two kernels. Beyond
// slow start both must get as much of 1 Gb/s. The test prints the rates but does not check them, as TestLongCable.
// Without STAG_LONG=1 it runs one round trip of three.
func TestSteadyLongCable(t *testing.T) {
	trips := []time.Duration{10 * time.Millisecond}
	if os.Getenv(longVariable) != "" {
		trips = []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond}
	}
	for _, trip := range trips {
		kernels := 0.0
		for _, c := range []struct {
			name  string
			start func(*steady)
		}{{"kernel to kernel", (*steady).kernels}, {"ours sends", (*steady).weSend}, {"the kernel sends", (*steady).kernelSends}} {
			t.Run(fmt.Sprintf("%v/%s", trip, c.name), func(t *testing.T) {
				s := newSteady(t, trip)
				c.start(s)
				rate := s.rate(max(time.Second, 40*trip))
				if rate == 0 {
					t.Fatal("nothing arrives")
				}
				if s.flow == nil {
					kernels = rate
				}
				t.Logf("%.0f Mb/s, %.2f of what two kernels have", rate, rate/kernels)
			})
		}
	}
}
