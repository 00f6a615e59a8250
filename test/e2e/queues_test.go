package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
)

// steerTo makes a side send everything through one of its two queues. The packets then arrive at the other side's queue
// of that number. A connection follows as soon as none of its segments is in flight.
func (r *rig) steerTo(side pair.Side, queue int) {
	r.Helper()
	all := fmt.Sprintf("%x", uint64(1)<<min(numCPU(r), 63)-1)
	r.in(side, func() error {
		sysfs, err := loader.Sysfs()
		if err != nil {
			return err
		}
		defer sysfs.Close()
		for _, q := range []int{1 - queue, queue} {
			mask := "0"
			if q == queue {
				mask = all
			}
			file := filepath.Join("class/net", r.pair.Ends[side].Name, "queues", fmt.Sprint("tx-", q), "xps_cpus")
			if err := writeAt(sysfs, file, mask); err != nil {
				return err
			}
		}
		return nil
	})
}

// numCPU returns the number of CPUs of the machine, including those that this process may not use.
func numCPU(r *rig) int {
	r.Helper()
	found, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*")
	r.Must(err)
	return len(found)
}

// writeAt writes a file below a directory.
func writeAt(dir *os.File, name, value string) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return fmt.Errorf("write %q to %s: %w", value, name, err)
	}
	return nil
}

// queueCounters returns the counters of each queue.
func (r *rig) queueCounters() (all []engine.Counters) {
	r.Helper()
	for _, e := range r.nic.Engines() {
		c, err := e.Counters(r.Ctx())
		r.Must(err)
		all = append(all, c)
	}
	return all
}

// TestOtherQueue lets the segments of a connection arrive at a queue that does not own it, and later at its own queue
// again.
func TestOtherQueue(t *testing.T) {
	r := newRig(t, setup{pair: pair.Config{Queues: 2}})
	r.steerTo(theirs, 0)
	o := nic.DefaultOptions
	o.Queue = 0
	our, peer := r.connect(way{})
	ulp := octets.NewEcho()
	f, err := r.nic.Take(r.Ctx(), our, ulp, o)
	r.Must(err)
	if q := f.Engine().Queue(); q != 0 {
		t.Fatalf("queue %d has the flow, want 0", q)
	}
	for round := range 3 {
		queue := round % 2
		r.steerTo(theirs, queue)
		before := r.queueCounters()
		for range 200 { // one at a time: the peer may change its queue between any two
			r.pingPong(peer)
		}
		after := r.queueCounters()
		in, out := after[0].PassedIn-before[0].PassedIn, after[1].PassedOut-before[1].PassedOut
		if queue == 0 && in > 2 || queue == 1 && (in < 198 || out != in) {
			t.Errorf("round %d: queue 1 passed %d segments on, queue 0 was passed %d", round, out, in)
		}
	}
	r.Must(peer.Close())
	r.endsWith(f, ulp, nil)
}

// TestQueueSwitchedInTransfer switches queues back and forth under load.
func TestQueueSwitchedInTransfer(t *testing.T) {
	r := newRig(t, setup{pair: pair.Config{Queues: 2}})
	x := r.unfinished(64 << 20)
	for i := range uint64(8) {
		x.reach((i + 1) << 20)
		r.steerTo(theirs, int(i%2))
	}
	x.finish()
	c := r.counters()
	r.Logf("passed %d segments to the other engine;%s", c.PassedOut, r.drops())
	if c.PassedOut == 0 || c.PassedOut < c.PassedIn {
		t.Errorf("%d segments were passed on, and %d came in", c.PassedOut, c.PassedIn)
	}
}

// TestManyFlowsTwoQueues spreads flows over two queues by the peer's hash, which need not match the owners.
func TestManyFlowsTwoQueues(t *testing.T) {
	r := newRig(t, setup{pair: pair.Config{Queues: 2}})
	const n, volume = 32, 1 << 20
	all := make([]running, n)
	owners := map[uint16]int{}
	for i := range all {
		all[i] = r.transfer(volume)
		owners[all[i].flow.Engine().Queue()]++
	}
	for _, x := range all {
		x.finish()
	}
	for q, c := range r.queueCounters() {
		r.Logf("queue %d owned %d flows, received %d packets, passed %d on", q, owners[uint16(q)], c.RxPackets, c.PassedOut)
		if owners[uint16(q)] == 0 || c.RxPackets == 0 {
			t.Errorf("queue %d owned %d flows and received %d packets", q, owners[uint16(q)], c.RxPackets)
		}
	}
}

// TestSlotAndChunkReused checks that flows that use the only slot one after another, with few chunks, never see a
// record of an earlier flow.
func TestSlotAndChunkReused(t *testing.T) {
	c := scarce
	c.MaxFlows = 1
	r := newRig(t, setup{nic: c})
	var last engine.FlowID
	for range 10 {
		our, peer := r.connect(way{})
		ulp := newGoodbye(octets.Plan{Send: 256 << 10, Seed: seedOurs, Expect: 256 << 10, PeerSeed: seedTheirs, Hold: true})
		f := r.take(our, ulp)
		if f.ID() == last || last != 0 && f.ID().Index() != last.Index() {
			t.Fatalf("flow %#x comes after flow %#x", f.ID(), last)
		}
		last = f.ID()
		k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: 256 << 10, halfShut: true}).start()
		r.Must(<-k.read)
		r.Must(<-k.wrote)
		r.endsWith(f, ulp, nil)
	}
	sum := r.counters()
	if sum.StaleRecords != 0 {
		t.Errorf("%d of %d records were stale", sum.StaleRecords, sum.RxPackets)
	}
	if sum.Unrecorded*10 > sum.RxPackets {
		t.Errorf("%d of %d packets came without a record", sum.Unrecorded, sum.RxPackets)
	}
}
