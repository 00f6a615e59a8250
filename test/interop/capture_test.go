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
)

// sniffer keeps what passes the guest's TAP since the row has begun: the frames
// as the guest sends and receives them.
type sniffer struct {
	fd    int
	ended chan struct{}

	mu   sync.Mutex
	stop bool
	kept bytes.Buffer // pcap
	out  *pcapgo.Writer
}

// mostKept bounds how much of a row is kept, octets.
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

// take keeps a frame, and reports whether there is to be another.
func (s *sniffer) take(buf []byte) bool {
	n, _, err := unix.Recvfrom(s.fd, buf, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.kept.Len() < mostKept {
		info := gopacket.CaptureInfo{Timestamp: time.Now(), CaptureLength: n, Length: n}
		s.out.WritePacket(info, buf[:n]) // to memory
	}
	return !s.stop
}

// begin forgets what has been before.
func (s *sniffer) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Reset()
	s.out = pcapgo.NewWriter(&s.kept)
	s.out.WriteFileHeader(65536, layers.LinkTypeEthernet)
}

// pcap is all that has passed, as a file. What passes right now may be missing:
// it is looked at with a delay.
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
