//go:build interop

package interop

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
)

// permissive are settings of LIO that leave the choice to this end. LIO's own
// MaxRecvDataSegmentLength is its param MaxXmitDataSegmentLength.
var permissive = []string{"param/ImmediateData=Yes", "param/InitialR2T=No", "param/MaxBurstLength=16777215", "param/FirstBurstLength=16777215",
	"param/MaxOutstandingR2T=8"}

// keys is a login with other values than the defaults, and one write and one read after it.
type keys struct {
	name     string
	settings []string // of LIO, after permissive
	cfg      iscsi.Config
	memory   bool // the disk is LIO's memory; its file takes 8 MiB at a time
	size     int  // octets of the write and of the read

	immediate   bool // the command has data
	unsolicited bool // there are Data-Out PDUs without R2T
	first       int  // octets without R2T, at most
	burst       int  // octets of an R2T, at most
	r2ts        int  // R2Ts that wait for data at a time, at most; if it is greater than 1, at least two must
	everyBurst  bool // the first R2T asks for burst octets
}

const (
	mostBurst    = 16777215 // the greatest value of MaxBurstLength and FirstBurstLength
	leastBurst   = 512
	defaultFirst = 65536
	lioBurst     = 262144
)

var keyRows = []keys{
	{name: "LIO: segments of 8192", settings: []string{"param/MaxXmitDataSegmentLength=8192"}, size: 1 << 20, immediate: true, unsolicited: true, first: defaultFirst, burst: 1 << 20, r2ts: 1},
	{name: "LIO: ImmediateData=No", settings: []string{"param/ImmediateData=No"}, size: 1 << 20, unsolicited: true, first: defaultFirst, burst: 1 << 20, r2ts: 1},
	{name: "LIO: InitialR2T=Yes", settings: []string{"param/InitialR2T=Yes"}, size: 1 << 20, immediate: true, first: defaultFirst, burst: 1 << 20, r2ts: 1},
	{name: "LIO: ImmediateData=No, InitialR2T=Yes", settings: []string{"param/ImmediateData=No", "param/InitialR2T=Yes"}, size: 1 << 20, burst: 1 << 20, r2ts: 1},
	{name: "we: ImmediateData=No", cfg: iscsi.Config{NoImmediateData: true}, size: 1 << 20, unsolicited: true, first: defaultFirst, burst: 1 << 20, r2ts: 1},
	{name: "we: InitialR2T=Yes", cfg: iscsi.Config{RequireR2T: true}, size: 1 << 20, immediate: true, first: defaultFirst, burst: 1 << 20, r2ts: 1},

	{name: "LIO: bursts of 512", settings: []string{"param/MaxBurstLength=512", "param/FirstBurstLength=512"}, size: 128 << 10,
		immediate: true, first: leastBurst, burst: leastBurst, r2ts: 1, everyBurst: true},
	{name: "we: bursts of 512", cfg: iscsi.Config{MaxBurstLength: leastBurst, FirstBurstLength: leastBurst}, size: 128 << 10,
		immediate: true, first: leastBurst, burst: leastBurst, r2ts: 1, everyBurst: true},
	{name: "LIO: its defaults", settings: []string{"param/MaxBurstLength=262144", "param/FirstBurstLength=65536"}, size: 2 << 20,
		immediate: true, first: defaultFirst, burst: lioBurst, r2ts: 1, everyBurst: true},
	{name: "first burst of 512, burst of 16 MiB - 1", cfg: iscsi.Config{MaxBurstLength: mostBurst, FirstBurstLength: leastBurst}, memory: true, size: 16<<20 + 1024,
		immediate: true, first: leastBurst, burst: mostBurst, r2ts: 1, everyBurst: true},
	{name: "bursts of 16 MiB - 1", cfg: iscsi.Config{MaxBurstLength: mostBurst, FirstBurstLength: mostBurst}, memory: true, size: 16<<20 + 1024,
		immediate: true, unsolicited: true, first: mostBurst, burst: mostBurst, r2ts: 1},

	{name: "8 R2Ts at a time", cfg: iscsi.Config{MaxBurstLength: 8192, FirstBurstLength: 4096, MaxOutstandingR2T: 8}, size: 256 << 10,
		immediate: true, first: 4096, burst: 8192, r2ts: 8, everyBurst: true},
	{name: "LIO: 1 R2T at a time, we: 8", settings: []string{"param/MaxOutstandingR2T=1"}, cfg: iscsi.Config{MaxBurstLength: 8192, FirstBurstLength: 4096, MaxOutstandingR2T: 8}, size: 256 << 10,
		immediate: true, first: 4096, burst: 8192, r2ts: 1, everyBurst: true},
}

// TestLIOKeys has one write and one read of a disk of LIO for each row of keyRows. tshark
// tells from the capture what went over the wire.
func TestLIOKeys(t *testing.T) {
	for n, k := range keyRows {
		c := carriers[n%len(carriers)]
		row(t, k.name+", "+c.name, about{"LIO", fmt.Sprintf("%d octets", k.size)}, func(r *rig) {
			l := r.lio(append(permissive, k.settings...)...)
			lun := lioFileLUN
			if k.memory {
				lun = lioMemoryLUN
			}
			d := r.dial(c, l.url("", lun, ""), k.cfg)
			octets := random(k.size)
			r.sniffer.begin()
			l.one(d, iscsi.Write, octets)
			k.judge(r)
			if sum := fmt.Sprintf("%x", sha256.Sum256(octets)); !k.memory && l.hash(k.size) != sum {
				l.Errorf("LIO's file has not the octets that were written")
			}
			got := make([]byte, k.size)
			l.one(d, iscsi.Read, got)
			if !bytes.Equal(got, octets) {
				l.Errorf("other octets were read than were written")
			}
		})
	}
}

// slowLine is a line over which the longest burst takes 13 s: longer than the silence of a
// target that makes the session give a connection up (iscsi.Config.Ping, twice).
const slowLine = "limit 500 rate 10mbit"

// TestLIOSlowLine writes the longest unsolicited burst over a slow line. LIO says nothing
// before the end of the burst, but it answers pings in the middle.
func TestLIOSlowLine(t *testing.T) {
	const size = 16 << 20
	for _, c := range carriers {
		row(t, "a burst of 16 MiB - 1, "+c.name, about{"LIO", fmt.Sprintf("%d octets", size)}, func(r *rig) {
			l := r.lio(permissive...)
			d := r.dial(c, l.url("", lioMemoryLUN, ""), iscsi.Config{MaxBurstLength: mostBurst, FirstBurstLength: mostBurst})
			octets := random(size)
			r.arriving(slowLine)
			l.one(d, iscsi.Write, octets)
			got := make([]byte, size)
			l.one(d, iscsi.Read, got)
			if !bytes.Equal(got, octets) {
				l.Errorf("other octets were read than were written")
			}
		})
	}
}

// one executes one command with all octets.
func (l *lio) one(d *iscsi.Disk, op iscsi.Op, octets []byte) {
	l.Helper()
	q, err := d.Queue(1)
	l.Must(err)
	_, err = q.Post(iscsi.IO{Op: op, Buffers: [][]byte{octets}})
	l.Must(err)
	l.Must(q.Wait(l.context()))
	var c [1]iscsi.Completion
	if q.Poll(c[:]) != 1 || c[0].Err != nil || c[0].Length != len(octets) {
		l.Fatalf("%+v, want %d octets", c[0], len(octets))
	}
	l.Must(q.Close())
}

// judge compares the capture of a write with the keys.
func (k *keys) judge(r *rig) {
	r.Helper()
	var command, unsolicited, solicited, waiting, most, first, greatest int
	for _, p := range r.dissected() {
		switch {
		case p.opcode == opCommand:
			command += p.length
		case p.opcode == opDataOut && p.ttt == noTag:
			unsolicited += p.length
		case p.opcode == opDataOut:
			if solicited += p.length; p.final {
				waiting--
			}
		case p.opcode == opR2T:
			waiting++
			if most, greatest = max(most, waiting), max(greatest, p.desired); first == 0 {
				first = p.desired
			}
		}
	}
	r.Logf("with the command %d, unsolicited %d, by R2T %d; R2Ts of %d and at most %d octets, %d at a time", command, unsolicited, solicited, first, greatest, most)
	if (command != 0) != k.immediate || (unsolicited != 0) != k.unsolicited || command+unsolicited > k.first || command+unsolicited+solicited != k.size {
		r.Errorf("with the command %d, unsolicited %d, by R2T %d: want %+v", command, unsolicited, solicited, *k)
	}
	if most > k.r2ts || most < 2 && k.r2ts > 1 || greatest > k.burst || k.everyBurst && first != k.burst {
		r.Errorf("R2Ts of %d and at most %d octets, %d at a time: want %+v", first, greatest, most, *k)
	}
}
