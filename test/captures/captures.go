// Package captures reads the captures of real peers in test/testdata/captures and
// returns their TCP connections as octet streams. The directory iscsi below it has the
// captures of iSCSI and iSER; all others are of iWARP. It parses packets with gopacket, so
// that a test of stag's parser does not depend on that parser.
package captures

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Conn is one TCP connection of a capture that contains the connection's SYN.
type Conn struct {
	Client, Server Stream // the client sent the first SYN
	Port           uint16 // port of the server
}

// Stream is one direction of a connection.
type Stream struct {
	// Segments holds the octets in order, divided as they were first sent.
	// Retransmissions are left out. Segments ends at the first gap.
	Segments [][]byte
	// Gap says that octets after those of Segments are missing from the capture.
	Gap bool
	// Again is the number of segments that repeated octets.
	Again int
}

// Bytes returns the stream in one piece.
func (s Stream) Bytes() []byte { return bytes.Join(s.Segments, nil) }

// Names returns the names of the captures of iWARP, sorted, without ".pcap".
func Names() ([]string, error) { return names(".") }

// ISCSI goes through the connections of all captures of iSCSI over TCP.
func ISCSI(tb testing.TB) iter.Seq2[string, Conn] {
	return connections(tb, func(name string) bool { return !strings.Contains(name, "iser") })
}

// ISER goes through the connections of all captures of iSER.
func ISER(tb testing.TB) iter.Seq2[string, Conn] {
	return connections(tb, func(name string) bool { return strings.Contains(name, "iser") })
}

// connections goes through the connections of the captures in the directory iscsi that
// are chosen. The string is the name of the capture.
func connections(tb testing.TB, chosen func(name string) bool) iter.Seq2[string, Conn] {
	return func(yield func(string, Conn) bool) {
		tb.Helper()
		all, err := names("iscsi")
		if err != nil {
			tb.Fatal(err)
		}
		for _, name := range all {
			if !chosen(name) {
				continue
			}
			conns, err := Read(name)
			if err != nil {
				tb.Fatal(err)
			}
			for _, c := range conns {
				if !yield(name, c) {
					return
				}
			}
		}
	}
}

// names returns the names of the captures in a directory below dir, relative to dir.
func names(sub string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir(), sub, "*.pcap"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("captures: no capture in %s", filepath.Join(dir(), sub))
	}
	for i, f := range files {
		files[i] = filepath.Join(sub, strings.TrimSuffix(filepath.Base(f), ".pcap"))
	}
	return files, err
}

func dir() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "..", "testdata", "captures")
}

// Read returns the connections of a capture in the order of their SYNs.
func Read(name string) ([]Conn, error) {
	b, err := os.ReadFile(filepath.Join(dir(), name+".pcap"))
	if err != nil {
		return nil, err
	}
	var t tracker
	if err := records(b, t.frame); err != nil {
		return nil, fmt.Errorf("captures: %s: %w", name, err)
	}
	return t.conns(), nil
}

// A pcap file has a header of 24 octets and then records. Each record has a header of
// 16 octets, with the captured length at offset 8. All captures here are of Ethernet
// and were written on little-endian machines.
const (
	fileMagic    = 0xa1b2c3d4
	fileLen      = 24
	recordLen    = 16
	recordLength = 8
)

// records calls fn for every frame of a pcap file.
func records(b []byte, fn func(gopacket.Packet)) error {
	if len(b) < fileLen || binary.LittleEndian.Uint32(b) != fileMagic {
		return errors.New("not a little-endian pcap file")
	}
	for b = b[fileLen:]; len(b) > 0; {
		if len(b) < recordLen {
			return errors.New("the file ends within a record's header")
		}
		n := binary.LittleEndian.Uint32(b[recordLength:])
		if b = b[recordLen:]; uint64(n) > uint64(len(b)) {
			return errors.New("the file ends within a frame")
		}
		fn(gopacket.NewPacket(b[:n], layers.LinkTypeEthernet, gopacket.Default))
		b = b[n:]
	}
	return nil
}

// end is the address and port of one end of a connection.
type end struct {
	addr string
	port layers.TCPPort
}

// half is one direction of a connection.
type half struct {
	from, to end
	first    bool   // the SYN of this half had no ACK
	isn      uint32 // sequence number of the SYN
	pieces   []piece
}

// piece is the payload of a segment with its offset in the stream.
type piece struct {
	at   uint32
	data []byte
}

// tracker collects the halves in the order of their SYNs.
type tracker struct{ halves []*half }

func (t *tracker) frame(p gopacket.Packet) {
	tcp, ok := p.TransportLayer().(*layers.TCP)
	if !ok {
		return
	}
	flow := p.NetworkLayer().NetworkFlow()
	from := end{flow.Src().String(), tcp.SrcPort}
	to := end{flow.Dst().String(), tcp.DstPort}
	if tcp.SYN {
		if h := t.find(from, to); h == nil || h.isn != tcp.Seq {
			t.halves = append(t.halves, &half{from: from, to: to, first: !tcp.ACK, isn: tcp.Seq})
		}
		return
	}
	if h := t.find(from, to); h != nil && len(tcp.Payload) > 0 {
		h.pieces = append(h.pieces, piece{tcp.Seq - h.isn - 1, tcp.Payload})
	}
}

// find returns the latest half between two ends, or nil.
func (t *tracker) find(from, to end) *half {
	for _, h := range slices.Backward(t.halves) {
		if h.from == from && h.to == to {
			return h
		}
	}
	return nil
}

// conns combines each half of a client with the next half in the other direction.
func (t *tracker) conns() (conns []Conn) {
	for i, c := range t.halves {
		if !c.first {
			continue
		}
		for _, s := range t.halves[i+1:] {
			if !s.first && s.from == c.to && s.to == c.from {
				conns = append(conns, Conn{c.stream(), s.stream(), uint16(s.from.port)})
				break
			}
		}
	}
	return conns
}

// stream puts the pieces into the order of the stream.
func (h *half) stream() (s Stream) {
	pieces := slices.Clone(h.pieces)
	slices.SortStableFunc(pieces, func(a, b piece) int { return int(a.at) - int(b.at) })
	var next uint32
	for _, p := range pieces {
		if p.at > next {
			s.Gap = true
			return s
		}
		known := next - p.at
		if known > 0 {
			s.Again++
		}
		if known < uint32(len(p.data)) {
			s.Segments = append(s.Segments, p.data[known:])
			next += uint32(len(p.data)) - known
		}
	}
	return s
}
