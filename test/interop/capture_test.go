//go:build interop

package interop

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/interop/progress"
)

// sniffer captures the frames on the guest's TAP since the start of the row, as the
// guest sends and receives them.
type sniffer struct {
	fd    int
	ended chan struct{}

	mu   sync.Mutex
	stop bool
	kept bytes.Buffer // in pcap format
	out  *pcapgo.Writer

	progress progress.Counter
}

// anyOrder is an option of tshark. Without it, tshark loses the messages of which segments were
// sent twice or came out of order, which happens on a busy machine.
const anyOrder = "tcp.reassemble_out_of_order:TRUE"

// mostKept limits the capture of a row, in octets.
const mostKept = 256 << 20

func newSniffer(p *pair.Pair) (*sniffer, error) {
	s := &sniffer{ended: make(chan struct{})}
	s.begin()
	if err := p.Do(pair.B, s.open); err != nil {
		return nil, fmt.Errorf("listen in on the TAP: %w", err)
	}
	go s.run()
	return s, nil
}

func (s *sniffer) open() (err error) {
	link, err := netlink.LinkByName(tapName)
	if err != nil {
		return err
	}
	const all = uint16(unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8)
	if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
		return err
	}
	unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50000}); err != nil {
		return err
	}
	return unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index})
}

func (s *sniffer) run() {
	defer close(s.ended)
	for buf := make([]byte, 65536); s.take(buf); {
	}
}

// take stores a frame. It returns false if the capture has ended.
func (s *sniffer) take(buf []byte) bool {
	n, _, err := unix.Recvfrom(s.fd, buf, 0)
	if err == nil {
		s.progress.Count(buf[:n])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.kept.Len() < mostKept {
		info := gopacket.CaptureInfo{Timestamp: time.Now(), CaptureLength: n, Length: n}
		s.out.WritePacket(info, buf[:n]) // cannot fail: the writer is in memory
	}
	return !s.stop
}

// begin deletes the frames of earlier rows.
func (s *sniffer) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Reset()
	s.out = pcapgo.NewWriter(&s.kept)
	s.out.WriteFileHeader(65536, layers.LinkTypeEthernet)
}

// pcap returns the capture as a pcap file. The last frames may be missing, because the
// sniffer reads them with a delay.
func (s *sniffer) pcap() []byte {
	time.Sleep(100 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.kept.Bytes())
}

func (s *sniffer) close() {
	s.mu.Lock()
	s.stop = true
	s.mu.Unlock()
	<-s.ended
	unix.Close(s.fd)
}

// sentBy returns the payload of the TCP segments that an address has sent since the start
// of the row, one after the other.
func (s *sniffer) sentBy(address string) (payload []byte) {
	file, err := pcapgo.NewReader(bytes.NewReader(s.pcap()))
	for err == nil {
		var frame []byte
		if frame, _, err = file.ZeroCopyReadPacketData(); err != nil {
			break
		}
		packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
		if network, transport := packet.NetworkLayer(), packet.TransportLayer(); network != nil && transport != nil && network.NetworkFlow().Src().String() == address {
			payload = append(payload, transport.LayerPayload()...)
		}
	}
	return payload
}
