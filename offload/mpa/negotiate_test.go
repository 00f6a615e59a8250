package mpa_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
)

// TestAccept: depths and RTR in answer to what real initiators send
// (RFC 6581 §9).
func TestAccept(t *testing.T) {
	for _, c := range []struct {
		name, request string
		offer         mpa.Offer
		reply         string
		ird, ord      uint16
		rtr           mpa.RTR
	}{
		{"siw", "10020004 00010001", mpa.Offer{NoCRC: true, IRD: 16, ORD: 16}, "10020004 00100001", 16, 1, mpa.NoRTR},
		{"siw, and we want the CRC", "10020004 00010001", mpa.Offer{IRD: 16, ORD: 16}, "50020004 00100001", 16, 1, mpa.NoRTR},
		{"siw, peer to peer", "10020004 8001c001", mpa.Offer{NoCRC: true, IRD: 1, ORD: 1}, "10020004 80018001", 1, 1, mpa.RTRWrite},
		{"siw, built for Read alone", "10020004 80014001", mpa.Offer{NoCRC: true, IRD: 1, ORD: 1}, "10020004 80014001", 1, 1, mpa.RTRRead},
		{"cxgb4", "50020004 80204020", mpa.Offer{IRD: 32, ORD: 32}, "50020004 80204020", 32, 32, mpa.RTRRead},
		{"irdma", "50020004 80ffc0ff", mpa.Offer{IRD: 16, ORD: 16}, "50020004 80108010", 16, 16, mpa.RTRWrite},
		{"irdma, falls back", "40010000", mpa.Offer{IRD: 16, ORD: 16}, "40010000", 16, 16, mpa.NoRTR},
		{"only Send", "50020004 c0010001", mpa.Offer{IRD: 4, ORD: 4}, "50020004 c0040001", 4, 1, mpa.RTRSend},
		{"all three", "50020004 c001c001", mpa.Offer{IRD: 4, ORD: 4}, "50020004 80048001", 4, 1, mpa.RTRWrite},
		{"Read needs a place", "50020004 80004000", mpa.Offer{}, "50020004 80014000", 1, 0, mpa.RTRRead},
		{"no RTR that we know", "50020004 80040004", mpa.Offer{IRD: 4, ORD: 4}, "50020004 80048004", 4, 4, mpa.RTRWrite},
		{"RTR bits without A mean nothing", "50020004 4001c001", mpa.Offer{IRD: 4, ORD: 4}, "50020004 00040001", 4, 1, mpa.NoRTR},
		{"no depth negotiated", "50020004 3fff3fff", mpa.Offer{IRD: 4, ORD: 5}, "50020004 3fff3fff", 4, 5, mpa.NoRTR},
		{"its ORD not negotiated", "50020004 00023fff", mpa.Offer{IRD: 4, ORD: 5}, "50020004 3fff0002", 4, 2, mpa.NoRTR},
		{"its IRD not negotiated", "50020004 3fff0002", mpa.Offer{IRD: 4, ORD: 5}, "50020004 00043fff", 4, 5, mpa.NoRTR},
		{"it wants more than we serve", "50020004 00080008", mpa.Offer{IRD: 4, ORD: 4}, "50020004 00040004", 4, 4, mpa.NoRTR},
		{"revision 2 without depths", "40020000", mpa.Offer{IRD: 4, ORD: 5}, "40020000", 4, 5, mpa.NoRTR},
		{"it wants Markers", "d0020004 00010001", mpa.Offer{IRD: 4, ORD: 4}, "50020004 00040001", 4, 1, mpa.NoRTR},
	} {
		request := unhex(t, reqKey+c.request)
		r, err := mpa.ReadRequest(request)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		reply, a, err := r.Accept(c.offer)
		if err != nil || !bytes.Equal(reply, unhex(t, repKey+c.reply)) {
			t.Errorf("%s: %v, answered % x", c.name, err, reply[16:])
		}
		if a.IRD != c.ird || a.ORD != c.ord || a.RTR != c.rtr {
			t.Errorf("%s: IRD %d, ORD %d, RTR %v", c.name, a.IRD, a.ORD, a.RTR)
		}
		if wire.MPAFlags(request[16]).Has(wire.MPAMarkers) != a.SendMarkers {
			t.Errorf("%s: Markers %v", c.name, a.SendMarkers)
		}
	}
}

func TestAcceptRefuses(t *testing.T) {
	r, err := mpa.ReadRequest(unhex(t, reqKey+"50020004 00010001"))
	if err != nil {
		t.Fatal(err)
	}
	if b, _, err := r.Accept(mpa.Offer{IRD: 16383}); b != nil || err == nil || !strings.Contains(err.Error(), "16382") {
		t.Errorf("IRD 16383: %v", err)
	}
	if b, _, err := r.Accept(mpa.Offer{Private: make([]byte, 509)}); b != nil || err == nil || !strings.Contains(err.Error(), "508") {
		t.Errorf("509 octets: %v", err)
	}
}

// TestReadReply: what the initiator makes of Replies.
func TestReadReply(t *testing.T) {
	plain := mpa.Offer{NoCRC: true, IRD: 4, ORD: 8}
	peer := mpa.Offer{PeerToPeer: true, IRD: 4, ORD: 8}
	for _, c := range []struct {
		name  string
		offer mpa.Offer
		reply string
		want  mpa.Agreed
	}{
		{"less than we want", plain, "10020004 00020003",
			mpa.Agreed{Revision: 2, IRD: 4, ORD: 2, PeerIRD: 2, PeerORD: 3}},
		{"more than we want", plain, "10020004 00200004",
			mpa.Agreed{Revision: 2, IRD: 4, ORD: 8, PeerIRD: 32, PeerORD: 4}},
		{"not negotiated", plain, "10020004 3fff3fff",
			mpa.Agreed{Revision: 2, IRD: 4, ORD: 8, PeerIRD: wire.NoDepth, PeerORD: wire.NoDepth}},
		{"the peer wants the CRC", plain, "50020004 00080004",
			mpa.Agreed{Revision: 2, CRC: true, IRD: 4, ORD: 8, PeerIRD: 8, PeerORD: 4}},
		{"the peer wants Markers", plain, "90020004 00080004",
			mpa.Agreed{Revision: 2, SendMarkers: true, IRD: 4, ORD: 8, PeerIRD: 8, PeerORD: 4}},
		{"we want Markers", mpa.Offer{Markers: true}, "10020004 00000000",
			mpa.Agreed{Revision: 2, CRC: true, ReceiveMarkers: true}},
		{"reserved flags, private data", plain, "1f020006 00080004 6869",
			mpa.Agreed{Revision: 2, IRD: 4, ORD: 8, PeerIRD: 8, PeerORD: 4, Private: []byte("hi")}},
		{"revision 1", mpa.Offer{Revision: 1, NoCRC: true, IRD: 4, ORD: 8}, "00010002 6869",
			mpa.Agreed{Revision: 1, IRD: 4, ORD: 8, Private: []byte("hi")}},
		{"RTR by Write", peer, "50020004 80088004",
			mpa.Agreed{Revision: 2, CRC: true, IRD: 4, ORD: 8, PeerIRD: 8, PeerORD: 4, RTR: mpa.RTRWrite}},
		{"RTR by Read", peer, "50020004 80084004",
			mpa.Agreed{Revision: 2, CRC: true, IRD: 4, ORD: 8, PeerIRD: 8, PeerORD: 4, RTR: mpa.RTRRead}},
		{"RTR by any", peer, "50020004 c008c004",
			mpa.Agreed{Revision: 2, CRC: true, IRD: 4, ORD: 8, PeerIRD: 8, PeerORD: 4, RTR: mpa.RTRWrite}},
	} {
		got, err := c.offer.ReadReply(unhex(t, repKey+c.reply))
		if c.want.Initiator, c.want.Enhanced = true, c.want.Revision == 2; len(got.Private) == 0 {
			got.Private = nil
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v\n%+v, want\n%+v", c.name, err, got, c.want)
		}
	}
}

// TestReadReplyRefuses: Replies to close for, and those to Terminate for.
func TestReadReplyRefuses(t *testing.T) {
	plain, peer := mpa.Offer{IRD: 4, ORD: 8}, mpa.Offer{PeerToPeer: true, IRD: 4, ORD: 8}
	unread := mpa.Offer{PeerToPeer: true, IRD: 4}
	for _, c := range []struct {
		name, reply string
		offer       mpa.Offer
		code        uint8 // 0: *FrameError
		want        string
	}{
		{"a Request", reqKey + "50020004 00010001", plain, 0, "both ends are initiators"},
		{"another key", "ff" + repKey[2:] + "50020004 00010001", plain, 0, "does not speak MPA"},
		{"revision 1", repKey + "40010000", plain, 0, "answers in revision 1 to a Request of revision 2"},
		{"revision 0", repKey + "40000000", mpa.Offer{Revision: 1}, 0, "answers in revision 0"},
		{"revision 7", repKey + "50070004 00010001", plain, 0, "answers in revision 7"},
		{"revision 2 to revision 1", repKey + "40020000", mpa.Offer{Revision: 1}, 0, "answers in revision 2"},
		{"no depths", repKey + "40020004 00010001", plain, 0, "try revision 1"},
		{"half of the depths", repKey + "50020003 000100", plain, 0, "only 3 octets"},
		{"too long", repKey + "50020004 00010001 00", plain, 0, "has 25 octets, but announces 24"},
		{"too short", repKey + "50020004 000100", plain, 0, "has 23 octets, but announces 24"},
		{"too much private data", repKey + "50020201", plain, 0, "513 octets"},
		{"more reads than we serve", repKey + "50020004 00080005", plain, mpa.CodeInsufficientIRD, "wants 5 RDMA Reads"},
		{"RTR unasked", repKey + "50020004 80088004", plain, mpa.CodeNoRTR, "we offered none"},
		{"no RTR", repKey + "50020004 00080004", peer, mpa.CodeNoRTR, "refuses peer-to-peer mode"},
		{"RTR by Send", repKey + "50020004 c0080004", peer, mpa.CodeNoRTR, "begin with no other"},
		{"RTR by nothing", repKey + "50020004 80080004", peer, mpa.CodeNoRTR, "begin with no other"},
		{"RTR by Read, not offered", repKey + "50020004 80084004", unread, mpa.CodeNoRTR, "begin with no other"},
		{"RTR by Read, which it does not serve", repKey + "50020004 80004004", peer, mpa.CodeInsufficientIRD, "IRD 0"},
	} {
		a, err := c.offer.ReadReply(unhex(t, c.reply))
		var bad *mpa.FrameError
		var no *mpa.Mismatch
		switch {
		case err == nil || !reflect.DeepEqual(a, mpa.Agreed{}) || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %+v, %v, want %q", c.name, a, err, c.want)
		case c.code == 0 && !errors.As(err, &bad):
			t.Errorf("%s: %T", c.name, err)
		case c.code != 0 && (!errors.As(err, &no) || no.Code != c.code):
			t.Errorf("%s: %#v, want code %d", c.name, err, c.code)
		}
	}
}

// TestRejections as they come: siw's in answer to Markers has no more than the
// flag, and an old peer may answer in its own revision.
func TestRejections(t *testing.T) {
	for _, c := range []struct {
		reply    string
		private  string
		ird, ord uint16
	}{
		{"30020004 00000000", "", 0, 0}, {"30020007 00030004 6e6f21", "no!", 3, 4},
		{"20020002 6e6f", "no", 0, 0}, {"20010002 6e6f", "no", 0, 0}, {"30010004 00010001", "\x00\x01\x00\x01", 0, 0},
	} {
		_, err := mpa.Offer{}.ReadReply(unhex(t, repKey+c.reply))
		var r *mpa.Rejected
		if !errors.As(err, &r) || string(r.Private) != c.private || r.PeerIRD != c.ird || r.PeerORD != c.ord {
			t.Errorf("%s: %#v", c.reply, err)
		}
	}
}

// TestReject: the Reply mirrors the Request, with R and without Markers.
func TestReject(t *testing.T) {
	for request, want := range map[string]string{
		"40010000":          "60010002 6e6f",
		"00010000":          "20010002 6e6f",
		"10020004 00010001": "30020006 00000000 6e6f",
		"d0020004 8001c001": "70020006 80008000 6e6f",
		"50020004 80010001": "70020006 80008000 6e6f",
		"40020000":          "60020002 6e6f",
	} {
		r, err := mpa.ReadRequest(unhex(t, reqKey+request))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Reject([]byte("no")); err != nil || !bytes.Equal(got, unhex(t, repKey+want)) {
			t.Errorf("%s is rejected by % x, %v", request, got, err)
		}
	}
}

// TestReadRequestRefuses: malformed Requests, each with its reason.
func TestReadRequestRefuses(t *testing.T) {
	for _, c := range []struct{ frame, want string }{
		{repKey + "40010000", "Reply without being asked"},
		{"ff" + reqKey[2:] + "40010000", "does not speak MPA"},
		{reqKey + "c0000000", "revision 0 (RDMAC's); we speak 1 and 2"},
		{reqKey + "50030004 00010001", "revision 3; we speak 1 and 2"},
		{reqKey + "50030000", "revision 3"},
		{reqKey + "40070000", "revision 7"},
		{reqKey + "50020000", "only 0 octets"},
		{reqKey + "50020003 000100", "only 3 octets"},
		{reqKey + "40010001", "has 20 octets, but announces 21"},
		{reqKey + "40010000 4143", "has 22 octets, but announces 20"},
		{reqKey + "40010201", "513 octets"},
		{"", "ends after 0 octets"},
	} {
		_, err := mpa.ReadRequest(unhex(t, c.frame))
		var bad *mpa.FrameError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.frame, err, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	for rtr, want := range map[mpa.RTR]string{mpa.NoRTR: "none", mpa.RTRWrite: "RDMA Write", mpa.RTRRead: "RDMA Read", mpa.RTRSend: "Send"} {
		if rtr.String() != want {
			t.Errorf("RTR %d is called %q", rtr, rtr)
		}
	}
	for f, want := range map[mpa.Fault]string{mpa.OK: "ok", mpa.BadCRC: "bad CRC", mpa.BadMarker: "misplaced Marker", mpa.BadLength: "FPDU too short"} {
		if f.String() != want {
			t.Errorf("fault %d is called %q", f, f)
		}
	}
}
