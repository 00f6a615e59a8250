package mpa_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
)

const (
	reqKey = "4d504120494420526571204672616d65"
	repKey = "4d504120494420526570204672616d65"
)

// TestOffers: what an Offer looks like on the wire.
func TestOffers(t *testing.T) {
	for _, c := range []struct {
		name  string
		offer mpa.Offer
		want  string
	}{
		{"revision 1", mpa.Offer{Revision: 1}, reqKey + "40010000"},
		{"nothing said", mpa.Offer{}, reqKey + "50020004 00000000"},
		{"as siw", mpa.Offer{NoCRC: true, IRD: 1, ORD: 1}, reqKey + "10020004 00010001"},
		{"peer to peer", mpa.Offer{PeerToPeer: true, IRD: 8, ORD: 8, Private: []byte("hi")}, reqKey + "50020006 8008c008 6869"},
		{"peer to peer, no reads", mpa.Offer{PeerToPeer: true, IRD: 8}, reqKey + "50020004 80088000"},
		{"Markers, greatest depths", mpa.Offer{Markers: true, IRD: 16382, ORD: 16382}, reqKey + "d0020004 3ffe3ffe"},
	} {
		got, err := c.offer.Request()
		if err != nil || !bytes.Equal(got, unhex(t, c.want)) {
			t.Errorf("%s: %v, % x", c.name, err, got)
		}
	}
}

// TestOffersRefused: what cannot be offered, and that the error says why.
func TestOffersRefused(t *testing.T) {
	for _, c := range []struct {
		offer mpa.Offer
		want  string
	}{
		{mpa.Offer{Revision: 3}, "choose 1 or 2"},
		{mpa.Offer{IRD: 16383}, "go up to 16382"},
		{mpa.Offer{ORD: 16383}, "go up to 16382"},
		{mpa.Offer{Revision: 1, PeerToPeer: true}, "choose revision 2"},
		{mpa.Offer{Private: make([]byte, 509)}, "509 octets of private data; there is room for 508"},
		{mpa.Offer{Revision: 1, Private: make([]byte, 513)}, "513 octets of private data; there is room for 512"},
	} {
		if b, err := c.offer.Request(); b != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.offer, err, c.want)
		}
	}
	_, err := mpa.Offer{Revision: 7, IRD: 0xffff}.Request()
	if err == nil || !strings.Contains(err.Error(), "choose 1 or 2") || !strings.Contains(err.Error(), "16382") {
		t.Errorf("two mistakes: %v", err)
	}
}

// TestPrivateData of every size that is near a limit, there and back, in
// Request, Reply and rejection.
func TestPrivateData(t *testing.T) {
	for _, rev := range []uint8{1, 2} {
		room := 512
		if rev == 2 {
			room = 508
		}
		for _, n := range []int{0, 1, 251, 252, 256, 508, 509, 512, 513} {
			data := bytes.Repeat([]byte{0xa5}, n)
			o := mpa.Offer{Revision: rev, Private: data}
			frame, err := o.Request()
			if (err == nil) != (n <= room) {
				t.Fatalf("revision %d, %d octets: %v", rev, n, err)
			}
			if err != nil {
				frame, _ = mpa.Offer{Revision: rev}.Request()
			}
			r, rerr := mpa.ReadRequest(frame)
			if rerr != nil || err == nil && !bytes.Equal(r.Private, data) {
				t.Fatalf("revision %d, %d octets arrive as %d, %v", rev, n, len(r.Private), rerr)
			}
			reply, _, err := r.Accept(mpa.Offer{Private: data})
			if (err == nil) != (n <= room) {
				t.Fatalf("Reply of revision %d, %d octets: %v", rev, n, err)
			}
			if rejection, rerr := r.Reject(data); (rerr == nil) != (n <= room) {
				t.Fatalf("rejection of revision %d, %d octets: %v", rev, n, rerr)
			} else if rerr == nil {
				checkRejected(t, o, rejection, data)
			}
			if err == nil {
				a, err := o.ReadReply(reply)
				if err != nil || !bytes.Equal(a.Private, data) {
					t.Errorf("Reply of revision %d: %d octets arrive as %d, %v", rev, n, len(a.Private), err)
				}
			}
		}
	}
}

func checkRejected(t *testing.T, o mpa.Offer, reply, data []byte) {
	t.Helper()
	_, err := o.ReadReply(reply)
	var r *mpa.Rejected
	if !errors.As(err, &r) || !bytes.Equal(r.Private, data) || !strings.Contains(err.Error(), "rejected") {
		t.Errorf("rejection with %d octets: %v", len(data), err)
	}
}

// TestMarkersRefused: a rejection without a word, of a Request for Markers, may
// be because of them, and says so.
func TestMarkersRefused(t *testing.T) {
	for _, c := range []struct {
		name, reply string
		markers     bool
		want        bool
	}{
		{"siw's answer", repKey + "70020004 00000000", true, true},
		{"revision 1", repKey + "60010000", true, true},
		{"a word of the application", repKey + "70020006 00000000 6e6f", true, false},
		{"no Markers asked for", repKey + "70020004 00000000", false, false},
	} {
		o := mpa.Offer{Markers: c.markers}
		if c.name == "revision 1" {
			o.Revision = 1
		}
		_, err := o.ReadReply(unhex(t, c.reply))
		var r *mpa.Rejected
		if !errors.As(err, &r) || r.Markers != c.want || errors.Is(err, mpa.ErrMarkersRefused) != c.want ||
			strings.Contains(err.Error(), "try without") != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestFrameLength: what the first 20 octets tell.
func TestFrameLength(t *testing.T) {
	for _, c := range []struct{ first, want string }{
		{reqKey + "40010000", "20"}, {repKey + "40010200", "532"}, {reqKey + "ffff0004", "24"},
		{reqKey + "40010201", "513 octets of private data; 512 are allowed"},
		{reqKey + "4001ffff", "65535 octets of private data"},
		{reqKey + "400100", "ends after 19 octets; it needs 20"},
		{"474554202f20485454502f312e310d0a 486f7374", `does not speak MPA: it begins with "GET / HTTP/1.1\r\n"`},
	} {
		n, err := mpa.FrameLength(unhex(t, c.first))
		var bad *mpa.FrameError
		switch got := fmt.Sprint(n); {
		case err == nil && got != c.want:
			t.Errorf("%s: %s, want %s", c.first, got, c.want)
		case err != nil && (!errors.As(err, &bad) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.first, err, c.want)
		}
	}
}

// TestFlags: every revision with every flag, as a Request. No flag is checked
// where it means nothing.
func TestFlags(t *testing.T) {
	for _, rev := range []uint8{0, 1, 2, 3, 7, 255} {
		for flags := range 256 {
			for _, a := range []bool{false, true} {
				f := wire.MPAFlags(flags)
				frame := wire.MPAFields{Flags: f, Revision: rev, PrivateLen: 4}.Append(nil)
				frame = wire.MPAEnhancedFields{PeerToPeer: a, Write: true, IRD: 5, ORD: 6}.Append(frame)
				r, err := mpa.ReadRequest(frame)
				if rev != 1 && rev != 2 {
					var bad *mpa.FrameError
					if !errors.As(err, &bad) || !strings.Contains(err.Error(), fmt.Sprintf("revision %d", rev)) {
						t.Fatalf("revision %d: %v", rev, err)
					}
					continue
				}
				want := mpa.Request{Revision: rev, Markers: f.Has(wire.MPAMarkers), CRC: f.Has(wire.MPACRC), Private: frame[20:]}
				if rev == 2 && f.Has(wire.MPAEnhanced) {
					want.Enhanced, want.PeerToPeer, want.OfferWrite = true, a, a
					want.IRD, want.ORD, want.Private = 5, 6, []byte{}
				}
				if err != nil || !sameRequest(r, want) {
					t.Fatalf("revision %d, flags %02x: %v, %+v, want %+v", rev, flags, err, r, want)
				}
				checkReply(t, r)
			}
		}
	}
}

func sameRequest(a, b mpa.Request) bool {
	same := bytes.Equal(a.Private, b.Private)
	a.Private, b.Private = nil, nil
	return same && reflect.DeepEqual(a, b)
}

// checkReply: the Reply has the Request's revision and S, its CRC is on if
// either wants it, Markers are asked for if we want them, and R is not set.
func checkReply(t *testing.T, r mpa.Request) {
	t.Helper()
	for _, o := range []mpa.Offer{{}, {NoCRC: true}, {Markers: true, NoCRC: true, IRD: 4, ORD: 4}} {
		reply, a, err := r.Accept(o)
		if err != nil {
			t.Fatal(err)
		}
		h, _, _ := wire.ParseMPA(reply)
		crc := r.CRC || !o.NoCRC
		var want wire.MPAFlags
		for _, f := range []struct {
			flag wire.MPAFlags
			set  bool
		}{{wire.MPAMarkers, o.Markers}, {wire.MPACRC, crc}, {wire.MPAEnhanced, r.Enhanced}} {
			if f.set {
				want |= f.flag
			}
		}
		if !h.Reply() || h.Flags() != want || h.Revision() != r.Revision || len(reply) != 20+h.PrivateLen() {
			t.Fatalf("%+v is answered % x, flags %02x wanted", r, reply, want)
		}
		if a.Initiator || a.CRC != crc || a.SendMarkers != r.Markers || a.ReceiveMarkers != o.Markers || a.Revision != r.Revision {
			t.Fatalf("%+v: %+v", r, a)
		}
	}
}

// TestBothEnds: whatever two ends offer, they agree on the same.
func TestBothEnds(t *testing.T) {
	for i := range 1 << 7 {
		bit := func(n int) bool { return i>>n&1 != 0 }
		ini := mpa.Offer{NoCRC: bit(0), Markers: bit(1), IRD: 3, ORD: 9, Private: []byte("ini")}
		if bit(2) {
			ini.Revision = 1
		} else {
			ini.PeerToPeer = bit(3)
		}
		res := mpa.Offer{NoCRC: bit(4), Markers: bit(5), IRD: 5, ORD: 7, Private: []byte("res"), PeerToPeer: bit(6)}
		frame, err := ini.Request()
		if err != nil {
			t.Fatal(err)
		}
		r, err := mpa.ReadRequest(frame)
		if err != nil {
			t.Fatal(err)
		}
		reply, b, err := r.Accept(res)
		if err != nil {
			t.Fatal(err)
		}
		a, err := ini.ReadReply(reply)
		if err != nil {
			t.Fatal(err)
		}
		want := mpa.Agreed{Initiator: true, Revision: b.Revision, CRC: b.CRC, SendMarkers: b.ReceiveMarkers,
			ReceiveMarkers: b.SendMarkers, IRD: 3, ORD: 9, RTR: b.RTR, Private: []byte("res")}
		if ini.Revision != 1 {
			want.ORD, want.Enhanced, want.PeerIRD, want.PeerORD = 5, true, 5, 3
		}
		if !reflect.DeepEqual(a, want) || string(b.Private) != "ini" || (a.RTR == mpa.RTRWrite) != ini.PeerToPeer {
			t.Fatalf("%+v and %+v agree on\n%+v and\n%+v", ini, res, a, b)
		}
		if a.Revision == 2 && (b.ORD != 3 || b.IRD != 5 || b.PeerIRD != 3 || b.PeerORD != 9) {
			t.Fatalf("the responder's depths: %+v", b)
		}
	}
}

// TestPrivateDataIsCopied: the frames' memory may be used again.
func TestPrivateDataIsCopied(t *testing.T) {
	o := mpa.Offer{Private: []byte("hello")}
	request, err := o.Request()
	if err != nil {
		t.Fatal(err)
	}
	r, err := mpa.ReadRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	reply, res, err := r.Accept(o)
	if err != nil {
		t.Fatal(err)
	}
	ini, err := o.ReadReply(reply)
	if err != nil {
		t.Fatal(err)
	}
	rejection, err := r.Reject(o.Private)
	if err != nil {
		t.Fatal(err)
	}
	_, err = o.ReadReply(rejection)
	var rejected *mpa.Rejected
	if !errors.As(err, &rejected) {
		t.Fatal(err)
	}
	for _, b := range [][]byte{request, reply, rejection} {
		clear(b)
	}
	for _, got := range [][]byte{r.Private, res.Private, ini.Private, rejected.Private} {
		if string(got) != "hello" {
			t.Errorf("private data became %q", got)
		}
	}
}
