package ping

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/test/captures"
	"github.com/stag-rdma/stag/test/rig"
)

// Lengths of the MPA Request and Reply in the capture, the place of their flags, the CRC flag, and the lengths of ULPDU
// headers. This test does not use package wire, so that it is independent of the code under test.
const (
	mpaLen, mpaFlags, mpaCRC = 24, 16, 0x40
	taggedLen, untaggedLen   = 14, 18
	opReadRequest, opSend    = 1, 3
)

// messages returns the messages of a stream: the MPA frame without its CRC flag, and each ULPDU without the addresses
// and keys, which differ between runs.
func messages(t *testing.T, stream []byte) (list []string) {
	t.Helper()
	if len(stream) < mpaLen {
		t.Fatalf("a stream of %d octets", len(stream))
	}
	hello := bytes.Clone(stream[:mpaLen])
	hello[mpaFlags] &^= mpaCRC
	list = append(list, fmt.Sprintf("%q", hello))
	for b := stream[mpaLen:]; len(b) > 0; {
		n := 2 + int(binary.BigEndian.Uint16(b))
		whole := (n+3)&^3 + 4
		if whole > len(b) {
			t.Fatalf("an FPDU of %d octets, of which %d are there", whole, len(b))
		}
		list = append(list, anonymous(b[2:n]))
		b = b[whole:]
	}
	return list
}

// anonymous returns a ULPDU with zeros for addresses and keys. The zero address of a Send without an address stays
// zero.
func anonymous(ulpdu []byte) string {
	u := bytes.Clone(ulpdu)
	if u[0]&0x80 != 0 {
		clear(u[2:taggedLen]) // the STag and the offset of a tagged segment
		return fmt.Sprintf("%q", u)
	}
	switch body := u[untaggedLen:]; u[1] & 0x0f {
	case opReadRequest:
		clear(body[:12])   // the sink's STag and offset in a Read Request
		clear(body[16:28]) // the source's STag and offset in a Read Request
	case opSend:
		clear(body[:12])
	}
	return fmt.Sprintf("%q", u)
}

// relay forwards a connection to the server and keeps the octets of each direction.
func relay(t *testing.T, to netip.AddrPort) (at netip.AddrPort, streams func() (client, server []byte)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	rig.Must(t, err)
	t.Cleanup(func() { l.Close() })
	var up, down bytes.Buffer
	done := make(chan error, 2)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		s, err := net.Dial("tcp", to.String())
		if err != nil {
			done <- err
			return
		}
		pass := func(to, from net.Conn, kept *bytes.Buffer) {
			_, err := io.Copy(to, io.TeeReader(from, kept))
			to.(*net.TCPConn).CloseWrite()
			done <- err
		}
		go pass(s, c, &up)
		pass(c, s, &down)
	}()
	return netip.MustParseAddrPort(l.Addr().String()), func() ([]byte, []byte) {
		rig.Must(t, <-done)
		rig.Must(t, <-done)
		return up.Bytes(), down.Bytes()
	}
}

// TestAsCaptured: five pings send the same messages as two rpings over the kernel's RDMA sent in a capture. In each
// direction the messages are in the same order and equal octet by octet.
func TestAsCaptured(t *testing.T) {
	conns, err := captures.Read("rping-siw-siw")
	rig.Must(t, err)
	s := serve(t, Options{})
	at, streams := relay(t, s.at)
	_, err = Client(t.Context(), Options{Count: 5}.at(at))
	rig.Must(t, err)
	_, err = s.end()
	rig.Must(t, err)
	client, server := streams()
	for _, way := range []struct {
		name      string
		got, want []byte
		messages  int
	}{
		{"client", client, conns[0].Client.Bytes(), 1 + 5*3},
		{"server", server, conns[0].Server.Bytes(), 1 + 5*4},
	} {
		got, want := messages(t, way.got), messages(t, way.want)
		if len(want) != way.messages {
			t.Fatalf("the capture has %d messages of the %s", len(want), way.name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the %s sent\n%q\nwant\n%q", way.name, got, want)
		}
	}
}
