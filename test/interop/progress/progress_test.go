package progress

import (
	"net"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// segment returns a frame with n octets from a sequence number on.
func segment(t *testing.T, port layers.TCPPort, from uint32, n int) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: make(net.HardwareAddr, 6), DstMAC: make(net.HardwareAddr, 6), EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IP{192, 0, 2, 1}, DstIP: net.IP{192, 0, 2, 2}}
	tcp := &layers.TCP{SrcPort: port, DstPort: 7174, Seq: from, ACK: true}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, tcp, gopacket.Payload(make([]byte, n)))
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestCounter: octets count once, also across the wrap of the sequence numbers, and in each
// direction of each connection.
func TestCounter(t *testing.T) {
	var c Counter
	for i, x := range []struct {
		port layers.TCPPort
		from uint32
		n    int
		want uint64 // octets so far
	}{
		{1, 0xfffffff0, 10, 10}, {1, 0xfffffff0, 10, 10}, {1, 0xfffffff5, 10, 15}, {1, 0xffffffff, 101, 116}, {1, 0xfffffff0, 10, 116},
		{2, 50, 0, 116}, {2, 50, 5, 121}, {1, 100, 20, 141},
	} {
		if c.Count(segment(t, x.port, x.from, x.n)); c.fresh.Load() != x.want {
			t.Fatalf("after segment %d: %d octets, want %d", i, c.fresh.Load(), x.want)
		}
	}
	c.Count(nil)
	c.Count(make([]byte, 60))
}

// TestStuck: a wait goes on while enough octets move. Octets that are sent again, and a few
// new ones, do not count.
func TestStuck(t *testing.T) {
	var c Counter
	c.Count(segment(t, 1, 0, 1000))
	w := c.Wait(time.Hour)
	w.since = w.since.Add(-time.Hour)
	c.Count(segment(t, 1, 0, 1000))
	c.Count(segment(t, 1, 1000, 1000))
	if !w.Stuck() {
		t.Error("1000 octets make the wait go on")
	}
	for i := range uint32(leastMoved/1000 + 1) {
		c.Count(segment(t, 1, 2000+1000*i, 1000))
	}
	if w.Stuck() {
		t.Errorf("stuck although %d octets have moved", c.fresh.Load())
	}
	if w.since = w.since.Add(-time.Hour); !w.Stuck() {
		t.Error("not stuck although nothing has moved since")
	}
}
