//go:build interop

package interop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// relayV4 is the address of relays, between stag and the guest.
const relayV4 = "192.0.2.2"

// spoiler changes frame n of a direction. Frame 0 is the Request or Reply. The others
// are FPDUs. spoiler may change the frame in place.
type spoiler func(n int, frame []byte)

// relay accepts one connection from the guest, connects it to stag's listener, and
// changes the forwarded frames. The capture shows the frames that siw sees.
type relay struct {
	port    string
	running sync.WaitGroup
}

// relay starts a relay for the next connection.
func (r *rig) relay(toUs, toGuest spoiler) *relay {
	r.Helper()
	l := r.listenBetween()
	_, port, err := net.SplitHostPort(l.Addr().String())
	r.Must(err)
	m := &relay{port: port}
	r.Cleanup(func() {
		l.Close()
		m.running.Wait()
	})
	m.running.Go(func() {
		client, err := l.Accept()
		if err != nil {
			return // the row has ended before a connection
		}
		defer client.Close()
		var server net.Conn
		err = r.pair.Do(pair.B, func() (err error) {
			server, err = net.Dial("tcp", net.JoinHostPort(ourV4, strconv.Itoa(rpingPort)))
			return err
		})
		if err != nil {
			r.Errorf("relay: %v", err)
			return
		}
		defer server.Close()
		var both sync.WaitGroup
		both.Go(func() { pass(server.(*net.TCPConn), client.(*net.TCPConn), toUs) })
		both.Go(func() { pass(client.(*net.TCPConn), server.(*net.TCPConn), toGuest) })
		both.Wait()
	})
	return m
}

// listenBetween listens in namespace B.
func (r *rig) listenBetween() (l net.Listener) {
	r.Helper()
	r.addressBetween()
	r.Must(r.pair.Do(pair.B, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(relayV4, "0"))
		return err
	}))
	return l
}

// addressBetween moves the address of namespace B to the bridge. At its old place, packets
// would reach only stag's side.
func (r *rig) addressBetween() {
	r.Helper()
	r.Must(r.pair.Do(pair.B, func() error {
		end, err := netlink.LinkByName(r.pair.Ends[pair.B].Name)
		if err != nil {
			return err
		}
		bridge, err := netlink.LinkByName("bridge0")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr(relayV4 + "/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrDel(end, address); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("take the address from %s: %w", end.Attrs().Name, err)
		}
		if err := netlink.AddrReplace(bridge, address); err != nil {
			return fmt.Errorf("give the bridge an address: %w", err)
		}
		return nil
	}))
}

// pass forwards frames until the end of the stream. Then it forwards the FIN or the
// reset.
func pass(to, from *net.TCPConn, spoil spoiler) {
	for n := 0; ; n++ {
		frame, err := readFrame(from, n == 0)
		if err != nil {
			if err == io.EOF {
				to.CloseWrite()
				return
			}
			to.SetLinger(0)
			to.Close()
			return
		}
		if spoil != nil {
			spoil(n, frame)
		}
		if _, err := to.Write(frame); err != nil {
			from.SetLinger(0)
			from.Close()
			return
		}
	}
}

// readFrame reads a Request or Reply, or an FPDU without Markers.
func readFrame(from io.Reader, mpa bool) ([]byte, error) {
	head := make([]byte, 2)
	length := func() int { return (2+int(binary.BigEndian.Uint16(head))+3)&^3 + 4 }
	if mpa {
		head = make([]byte, 20)
		length = func() int { return 20 + int(binary.BigEndian.Uint16(head[18:])) }
	}
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	frame := make([]byte, length())
	_, err := io.ReadFull(from, frame[copy(frame, head):])
	return frame, err
}

// setOctet returns a spoiler that changes an octet of one FPDU and corrects the CRC. at
// counts from the length field.
func setOctet(number, at int, to byte) spoiler {
	return func(n int, frame []byte) {
		if n == number {
			frame[at] = to
			sum(frame)
		}
	}
}

func sum(fpdu []byte) {
	covered := len(fpdu) - 4
	binary.LittleEndian.PutUint32(fpdu[covered:], crc32.Checksum(fpdu[:covered], crc32.MakeTable(crc32.Castagnoli)))
}

// badCRC returns a spoiler that makes the CRC of one FPDU wrong.
func badCRC(number int) spoiler {
	return func(n int, frame []byte) {
		if n == number {
			frame[len(frame)-1] ^= 1
		}
	}
}
