package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// TestBig transfers 4 GiB in each direction at the same time between an engine and a plain kernel peer. This is more
// than the sequence space holds.
func TestBig(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("4 GiB each way take half a minute")
	}
	const volume = 4<<30 + 12345
	r := newRig(t, setup{})
	our, peer := r.connect(way{})
	x := r.transferOn(our, peer, volume)
	began := time.Now()
	for shown := uint64(1); ; {
		select {
		case <-x.ulp.Done():
			x.finish()
			took := time.Since(began)
			t.Logf("%d MiB each way in %v: %.0f MB/s each way; %v; %+v", volume>>20, took.Round(time.Millisecond),
				volume/1e6/took.Seconds(), r.lost(), x.flow.Final())
			return
		case <-time.After(100 * time.Millisecond):
		}
		out, in := x.peer.received.Load(), x.ulp.Received()
		if min(out, in)>>30 >= shown {
			t.Logf("%v: %d MiB out, %d MiB in", time.Since(began).Round(time.Millisecond), out>>20, in>>20)
			shown++
		}
		if time.Since(began) > 8*time.Minute {
			info, err := x.flow.Info(r.Ctx())
			t.Fatalf("not within 8 minutes: %d octets out, %d in; %+v, %v", out, in, info, err)
		}
	}
}

// losses counts the packets that the cable and its ends have dropped since the start.
type losses struct {
	cable    [2]uint64 // by sender: the ring to the other end was full
	ring     uint64    // the engine's receive ring was full
	noFrames uint64    // the engine's fill ring was empty
	transmit uint64    // the kernel accepted the engine's packet and dropped it
	peer     uint64    // the peer's TCP had no memory for it
}

func (l losses) String() string {
	return fmt.Sprintf("lost on the cable: %d of ours, %d of the peer's; at our ring: %d, for want of frames: %d, on transmission: %d; by the peer's TCP: %d",
		l.cable[ours], l.cable[theirs], l.ring, l.noFrames, l.transmit, l.peer)
}

func (r *rig) lost() (l losses) {
	r.Helper()
	for _, side := range []pair.Side{ours, theirs} {
		l.cable[side] = r.link(side).Attrs().Statistics.TxDropped
	}
	queues, err := r.nic.PortStats(r.Ctx())
	r.Must(err)
	for _, q := range queues {
		l.ring += q.Kernel.RxRingFull + q.Kernel.RxDropped
		l.noFrames += q.Kernel.FillEmpty
		l.transmit += q.Lost
	}
	for _, name := range []string{"TCPBacklogDrop", "TCPRcvQDrop", "TCPZeroWindowDrop", "RcvPruned"} {
		l.peer += r.tcpCounter(theirs, name)
	}
	return l
}

// tcpCounter returns one of the extended counters of a side's TCP, or 0 if this kernel does not have the counter.
func (r *rig) tcpCounter(side pair.Side, name string) (n uint64) {
	r.Helper()
	r.in(side, func() error {
		b, err := os.ReadFile("/proc/thread-self/net/netstat")
		if err != nil {
			return err
		}
		lines := strings.Split(string(b), "\n")
		for i := 0; i+1 < len(lines); i += 2 { // names, then numbers
			at := slices.Index(strings.Fields(lines[i]), name)
			if at > 0 {
				n, err = strconv.ParseUint(strings.Fields(lines[i+1])[at], 10, 64)
			}
		}
		return err
	})
	return n
}
