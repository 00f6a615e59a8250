package bpf_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/packet"
)

// These are the verdicts of a program (enum xdp_action).
const (
	drop     = 1
	pass     = 2
	redirect = 4
)

// bench is the loaded program, attached to no interface.
type bench struct {
	t    testing.TB
	prog *ebpf.Program
	maps map[string]*ebpf.Map
}

func newBench(t testing.TB) *bench {
	t.Helper()
	need.XDP(t)
	spec, err := bpf.Spec()
	if err != nil {
		t.Fatal(err)
	}
	spec.Maps[bpf.MapFlows4].MaxEntries, spec.Maps[bpf.MapFlows6].MaxEntries = 64, 64
	spec.Maps[bpf.MapSocks].MaxEntries = 4
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	return &bench{t: t, prog: coll.Programs[bpf.Program], maps: coll.Maps}
}

// orphanWait sets how long the program keeps the flows of a dead engine.
func (b *bench) orphanWait(d time.Duration) {
	b.t.Helper()
	if err := b.maps[bpf.MapOptions].Put(uint32(0), bpf.Options{OrphanWait: uint64(d)}); err != nil {
		b.t.Fatal(err)
	}
}

// plug puts a socket into the slot of queue 0.
func (b *bench) plug() { b.plugAt(0) }

func (b *bench) plugAt(queue uint32) {
	b.t.Helper()
	if err := b.maps[bpf.MapSocks].Put(queue, b.socket()); err != nil {
		b.t.Fatal(err)
	}
}

// socket makes an AF_XDP socket with a receive ring. Newer kernels take no other into a map.
func (b *bench) socket() uint32 {
	b.t.Helper()
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_XDP, unix.XDP_RX_RING, 1); err != nil {
		b.t.Fatal(err)
	}
	return uint32(fd)
}

// live puts a socket into the slot of a lane, so that the program takes the lane's
// engine for alive.
func (b *bench) live(lane uint32) {
	b.t.Helper()
	if err := b.maps[bpf.MapLanes].Put(lane, b.socket()); err != nil {
		b.t.Fatal(err)
	}
}

// flow inserts a flow. remote and local are the addresses as arriving packets have
// them.
func (b *bench) flow(remote, local string, vlan uint16, f bpf.Flow) {
	b.t.Helper()
	key, err := bpf.NewFlowKey(netip.MustParseAddrPort(remote), netip.MustParseAddrPort(local), vlan)
	if err != nil {
		b.t.Fatal(err)
	}
	name, in := key.InMap()
	if err := b.maps[name].Put(in, f); err != nil {
		b.t.Fatal(err)
	}
}

// counts returns the count of each reason over all processors.
func (b *bench) counts() (sum [bpf.Reasons]uint64) {
	b.t.Helper()
	for why := range sum {
		var per []uint64
		if err := b.maps[bpf.MapStats].Lookup(uint32(why), &per); err != nil {
			b.t.Fatal(err)
		}
		for _, n := range per {
			sum[why] += n
		}
	}
	return sum
}

// meta is struct xdp_md. In test runs its offsets count from the start of the metadata.
type meta struct{ Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32 }

// run gives the program a frame with front octets of metadata in front of it. It
// returns the verdict, the metadata and the packet after the run, and the one counted
// reason.
func (b *bench) run(frame []byte, front int) (verdict uint32, record, out []byte, why bpf.Reason, err error) {
	b.t.Helper()
	before := b.counts()
	in := append(make([]byte, front), frame...)
	after := meta{}
	opts := ebpf.RunOptions{
		Data: in, DataOut: make([]byte, len(in)+512), ContextOut: &after,
		Context: meta{Data: uint32(front), DataEnd: uint32(len(in))},
	}
	verdict, err = b.prog.Run(&opts)
	if err != nil {
		return 0, nil, nil, 0, err
	}
	return verdict, opts.DataOut[:after.Data], opts.DataOut[after.Data:], b.counted(before), nil
}

// counted returns the one reason whose count is one higher than before. It fails the
// test if the counts differ in any other way.
func (b *bench) counted(before [bpf.Reasons]uint64) bpf.Reason {
	b.t.Helper()
	var why []bpf.Reason
	for i, n := range b.counts() {
		for ; n > before[i]; n-- {
			why = append(why, bpf.Reason(i))
		}
	}
	if len(why) != 1 {
		b.t.Errorf("counted %v, want exactly one reason", why)
		return bpf.Reasons
	}
	return why[0]
}

// crowded runs a frame with so much metadata in front of it that there is no room for a
// record.
func (b *bench) crowded(frame []byte) (verdict uint32, why bpf.Reason) {
	b.t.Helper()
	// Find the largest size that the kernel allows. It was 32 octets in old kernels.
	for front := 252; front >= 32; front -= 4 {
		verdict, record, _, why, err := b.run(frame, front)
		if errors.Is(err, unix.EINVAL) {
			continue
		}
		if err != nil {
			b.t.Fatal(err)
		}
		if len(record) != front {
			b.t.Errorf("metadata grew from %d octets to %d", front, len(record))
		}
		return verdict, why
	}
	b.t.Fatal("the kernel takes no metadata in test runs")
	return 0, 0
}

// fpdu returns the beginning of an FPDU: length, DDP and RDMAP control octets, STag,
// offset, and some payload.
func fpdu(length uint16, ddp, rdmap byte, stag uint32) []byte {
	b := binary.BigEndian.AppendUint16(nil, length)
	b = append(b, ddp, rdmap)
	b = binary.BigEndian.AppendUint32(b, stag)
	b = binary.BigEndian.AppendUint64(b, 0x1122334455667788)
	return append(b, "payload."...)
}

// ours returns a segment that the local end of the default tuple sent.
func ours(v6 bool) packet.TCP {
	src, dst := packet.Our4, packet.Peer4
	if v6 {
		src, dst = packet.Our6, packet.Peer6
	}
	return packet.TCP{IP: packet.IP{Src: src, Dst: dst, DF: true}, Payload: make([]byte, 1400)}
}
