package mpa_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/captures"
)

var update = flag.Bool("update", false, "write testdata/captures.txt anew; read the difference before you commit it")

// TestCaptures: what real peers said to one another, frame by frame and FPDU by
// FPDU, is what testdata/captures.txt says.
func TestCaptures(t *testing.T) {
	var got strings.Builder
	eachCapture(t, func(name string, i int, c captures.Conn) {
		fmt.Fprintf(&got, "%s %d\n", name, i)
		request, reply := greeting(c.Client.Bytes()), greeting(c.Server.Bytes())
		fmt.Fprintf(&got, "    request %s\n    reply   %s\n", asked(request), answered(reply, request))
		for _, dir := range []struct {
			name string
			s    captures.Stream
		}{{"client", c.Client}, {"server", c.Server}} {
			got.WriteString("    " + dir.name + " ")
			got.WriteString(conversation(dir.s, wantsCRC(request) || wantsCRC(reply)) + "\n")
		}
	})
	golden := filepath.Join("testdata", "captures.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		differ(t, strings.Split(got.String(), "\n"), strings.Split(string(want), "\n"))
	}
}

func differ(t *testing.T, got, want []string) {
	t.Helper()
	for i, line := range want {
		if i >= len(got) || got[i] != line {
			t.Fatalf("line %d is\n%s, want\n%s", i+1, slices.Concat(got, make([]string, len(want)))[i], line)
		}
	}
	t.Fatalf("%d lines, want %d", len(got), len(want))
}

func eachCapture(t *testing.T, fn func(name string, i int, c captures.Conn)) {
	t.Helper()
	names, err := captures.Names()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		conns, err := captures.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range conns {
			fn(name, i, c)
		}
	}
}

// greeting is the MPA frame that b begins with; nil: none.
func greeting(b []byte) []byte {
	if len(b) < wire.MPAFrameLen {
		return nil
	}
	n, err := mpa.FrameLength(b[:wire.MPAFrameLen])
	if err != nil || n > len(b) {
		return nil
	}
	return b[:n]
}

func wantsCRC(frame []byte) bool { return len(frame) > 0 && wire.MPAFlags(frame[16]).Has(wire.MPACRC) }

// asked is a Request from its flags on, and what is wrong with it.
func asked(request []byte) string {
	_, err := mpa.ReadRequest(request)
	return shown(request, err)
}

// answered is a Reply from its flags on, as the sender of the Request would see it.
func answered(reply, request []byte) string {
	o := mpa.Offer{}
	if r, err := mpa.ReadRequest(request); err == nil {
		o = mpa.Offer{Revision: r.Revision, PeerToPeer: r.PeerToPeer, IRD: r.IRD, ORD: r.ORD}
	}
	_, err := o.ReadReply(reply)
	return shown(reply, err)
}

func shown(frame []byte, err error) string {
	switch {
	case frame == nil:
		return "none"
	case err != nil:
		return fmt.Sprintf("%x: %v", frame[16:min(len(frame), 32)], err)
	}
	return fmt.Sprintf("%x", frame[16:min(len(frame), 32)])
}

// conversation is the FPDUs of a direction, equal ones counted.
func conversation(s captures.Stream, crc bool) string {
	b := s.Bytes()
	b = b[len(greeting(b)):]
	ulpdus, f, partial := deframe(crc, false, b)
	var runs runs
	for _, u := range ulpdus {
		runs.add(describe(u))
	}
	if f != mpa.OK {
		runs.add(f.String())
	}
	if partial {
		runs.add("part of an FPDU")
	}
	if len(b) == 0 {
		return "says nothing more"
	}
	return fmt.Sprintf("%d octets, CRC %v: %s", len(b), crc, strings.Join(runs.said, ", "))
}

// runs is a list in which what repeats itself is counted.
type runs struct {
	said []string
	last string
	n    int
}

func (r *runs) add(s string) {
	if s != r.last {
		r.said, r.last, r.n = append(r.said, s), s, 1
		return
	}
	r.n++
	r.said[len(r.said)-1] = fmt.Sprintf("%d %s", r.n, s)
}

func describe(ulpdu []byte) string {
	if h, _, ok := wire.ParseTagged(ulpdu); ok {
		return h.Opcode().String() + more(h.Last())
	}
	h, payload, ok := wire.ParseUntagged(ulpdu)
	if !ok {
		return "not DDP"
	}
	if term, ok := wire.ParseTerminate(payload); ok && h.Opcode() == wire.OpTerminate {
		return fmt.Sprintf("Terminate %d/%d/%02x (siw's order %v, quotes %d and %d octets)",
			term.Layer, term.Type, term.Code, term.Swapped, len(term.Header), len(term.ReadRequest))
	}
	return h.Opcode().String() + more(h.Last())
}

func more(last bool) string {
	if last {
		return ""
	}
	return "..."
}

// TestCapturesCut: the same FPDUs come out however the stream is cut: as the
// segments were, octet by octet, at random, and once at each octet (of long
// streams, of the first 3000).
func TestCapturesCut(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	seen := 0
	eachCapture(t, func(name string, i int, c captures.Conn) {
		crc := wantsCRC(greeting(c.Client.Bytes())) || wantsCRC(greeting(c.Server.Bytes()))
		for _, s := range []captures.Stream{c.Client, c.Server} {
			all := s.Bytes()
			b := all[len(greeting(all)):]
			want, f, partial := deframe(crc, false, b)
			check := func(how string, pieces [][]byte) {
				t.Helper()
				got, f2, partial2 := deframe(crc, false, pieces...)
				if f2 != f || partial2 != partial || !slices.EqualFunc(got, want, bytes.Equal) {
					t.Fatalf("%s, connection %d, %s: %v, %d FPDUs; whole: %v, %d", name, i, how, f2, len(got), f, len(want))
				}
			}
			check("as segments", afterGreeting(s, len(all)-len(b)))
			check("octet by octet", octetwise(b))
			for range 3 {
				check("at random", random(r, b, 1+r.IntN(2000)))
			}
			b = b[:min(len(b), 3000)]
			want, f, partial = deframe(crc, false, b)
			for at := range b {
				check(fmt.Sprintf("at %d", at), [][]byte{b[:at], b[at:]})
			}
			seen += len(want)
		}
	})
	if seen < 400 {
		t.Errorf("only %d FPDUs seen", seen)
	}
}

// afterGreeting is the stream's segments without its first n octets.
func afterGreeting(s captures.Stream, n int) (segments [][]byte) {
	for _, b := range s.Segments {
		cut := min(n, len(b))
		n -= cut
		segments = append(segments, b[cut:])
	}
	return segments
}

// TestWeAnswerAsSiw: this package answers siw's Requests with the same Replies as siw
// if it offers the same.
func TestWeAnswerAsSiw(t *testing.T) {
	compared := 0
	eachCapture(t, func(name string, i int, c captures.Conn) {
		request, reply := greeting(c.Client.Bytes()), greeting(c.Server.Bytes())
		if strings.Contains(name, "raw") {
			return // one end was written by hand
		}
		r, err := mpa.ReadRequest(request)
		if err != nil {
			t.Fatalf("%s, connection %d: %v", name, i, err)
		}
		o := mpa.Offer{NoCRC: !wantsCRC(reply)}
		if e, _, ok := wire.ParseMPAEnhanced(reply[20:]); ok {
			o.IRD, o.ORD = e.IRD, e.ORD
		}
		ours, a, err := r.Accept(o)
		if err != nil || !bytes.Equal(ours, reply) {
			t.Errorf("%s, connection %d: %v, our Reply % x, siw's % x", name, i, err, ours, reply)
		}
		// And what siw agreed to as initiator, we would have.
		ini := mpa.Offer{Revision: r.Revision, NoCRC: !r.CRC, IRD: r.IRD, ORD: r.ORD, PeerToPeer: r.PeerToPeer}
		b, err := ini.ReadReply(reply)
		if err != nil || b.CRC != a.CRC || b.RTR != a.RTR || b.ORD != a.PeerORD {
			t.Errorf("%s, connection %d: %v, we would agree on %+v", name, i, err, b)
		}
		compared++
	})
	if compared < 10 {
		t.Errorf("only %d connections of siw with siw", compared)
	}
}
