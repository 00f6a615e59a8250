package mpa_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
)

const bothExt = wire.ExtAlignedFPDUs | wire.ExtRFC7306

// TestExtensions: the ends agree on what both want, the applications never see the
// trailer, and a Reply has a trailer only if there is an agreement.
func TestExtensions(t *testing.T) {
	for _, c := range []struct {
		name           string
		revision       uint8
		ini, res       wire.Extensions
		request, reply string
		agreed         wire.Extensions
	}{
		{"nobody wants any", 2, 0, 0, "50020006 00000000 6869", "50020006 00000000 796f", 0},
		{"only the initiator", 2, bothExt, 0, "5002000e 00000000 6869 53746710 00000003", "50020006 00000000 796f", 0},
		{"only the responder", 2, 0, bothExt, "50020006 00000000 6869", "50020006 00000000 796f", 0},
		{"both", 2, bothExt, bothExt, "5002000e 00000000 6869 53746710 00000003", "5002000e 00000000 796f 53746711 00000003", bothExt},
		{"the responder wants less", 2, bothExt, wire.ExtRFC7306,
			"5002000e 00000000 6869 53746710 00000003", "5002000e 00000000 796f 53746711 00000002", wire.ExtRFC7306},
		{"the initiator wants less", 2, wire.ExtAlignedFPDUs, bothExt,
			"5002000e 00000000 6869 53746710 00000001", "5002000e 00000000 796f 53746711 00000001", wire.ExtAlignedFPDUs},
		{"nothing in common", 2, wire.ExtAlignedFPDUs, wire.ExtRFC7306,
			"5002000e 00000000 6869 53746710 00000001", "50020006 00000000 796f", 0},
		{"revision 1", 1, bothExt, bothExt, "4001000a 6869 53746710 00000003", "4001000a 796f 53746711 00000003", bothExt},
	} {
		ini := mpa.Offer{Revision: c.revision, Private: []byte("hi"), Extensions: c.ini}
		request, err := ini.Request()
		if err != nil || !bytes.Equal(request, unhex(t, reqKey+c.request)) {
			t.Fatalf("%s: %v, % x", c.name, err, request)
		}
		r, err := mpa.ReadRequest(request)
		if err != nil || string(r.Private) != "hi" || r.Extensions != c.ini {
			t.Fatalf("%s: %v, the responder reads %q, %#x", c.name, err, r.Private, r.Extensions)
		}
		reply, b, err := r.Accept(mpa.Offer{Private: []byte("yo"), Extensions: c.res})
		if err != nil || !bytes.Equal(reply, unhex(t, repKey+c.reply)) {
			t.Fatalf("%s: %v, answered % x", c.name, err, reply)
		}
		a, err := ini.ReadReply(reply)
		if err != nil || string(a.Private) != "yo" || string(b.Private) != "hi" {
			t.Fatalf("%s: %v, %q and %q", c.name, err, a.Private, b.Private)
		}
		if a.Extensions != c.agreed || b.Extensions != c.agreed {
			t.Errorf("%s: the ends agree on %#x and %#x, want %#x", c.name, a.Extensions, b.Extensions, c.agreed)
		}
	}
}

// TestExtensionsOfReply: an initiator takes only an answer to its own offer for a
// trailer, and takes from it only what it offered.
func TestExtensionsOfReply(t *testing.T) {
	for _, c := range []struct {
		name, reply string
		offer       wire.Extensions
		private     string
		agreed      wire.Extensions
	}{
		{"the responder sends the Request's octets back", "5002000e 00000000 6869 53746710 00000003", bothExt, "hi\x53\x74\x67\x10\x00\x00\x00\x03", 0},
		{"nothing was offered", "5002000e 00000000 6869 53746711 00000003", 0, "hi\x53\x74\x67\x11\x00\x00\x00\x03", 0},
		{"more than was offered", "5002000c 00000000 53746711 ffffffff", wire.ExtRFC7306, "", wire.ExtRFC7306},
		{"another version", "5002000c 00000000 53746721 00000003", bothExt, "\x53\x74\x67\x21\x00\x00\x00\x03", 0},
		{"a part of a trailer", "5002000b 00000000 53746711 000000", bothExt, "\x53\x74\x67\x11\x00\x00\x00", 0},
	} {
		a, err := mpa.Offer{Extensions: c.offer}.ReadReply(unhex(t, repKey+c.reply))
		if err != nil || string(a.Private) != c.private || a.Extensions != c.agreed {
			t.Errorf("%s: %v, %q, %#x", c.name, err, a.Private, a.Extensions)
		}
	}
}

// TestExtensionsNeedRoom: the trailer takes 8 octets of the private data, and an Offer
// without that room is refused at either end, whatever the peer offers.
func TestExtensionsNeedRoom(t *testing.T) {
	for _, c := range []struct {
		revision uint8
		most     int
	}{{2, 500}, {1, 504}} {
		plain, err := mpa.Offer{Revision: c.revision}.Request()
		if err != nil {
			t.Fatal(err)
		}
		r, err := mpa.ReadRequest(plain)
		if err != nil {
			t.Fatal(err)
		}
		for over := range 2 {
			o := mpa.Offer{Revision: c.revision, Extensions: bothExt, Private: make([]byte, c.most+over)}
			request, err := o.Request()
			_, _, err2 := r.Accept(o)
			for _, err := range []error{err, err2} {
				if (err == nil) != (over == 0) || over == 1 && !strings.Contains(err.Error(), "beside the trailer") {
					t.Errorf("revision %d, %d octets: %v", c.revision, c.most+over, err)
				}
			}
			if over == 0 && len(request) != 20+512 {
				t.Errorf("revision %d: a Request of %d octets", c.revision, len(request))
			}
		}
	}
}

// TestRejectHasNoTrailer: a Reply that refuses has the private data of the application
// only, with all its room.
func TestRejectHasNoTrailer(t *testing.T) {
	o := mpa.Offer{Extensions: bothExt}
	request, err := o.Request()
	if err != nil {
		t.Fatal(err)
	}
	r, err := mpa.ReadRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	private := bytes.Repeat([]byte("n"), 508)
	reply, err := r.Reject(private)
	if err != nil {
		t.Fatal(err)
	}
	var no *mpa.Rejected
	if _, err := o.ReadReply(reply); !errors.As(err, &no) || !bytes.Equal(no.Private, private) {
		t.Errorf("%v", err)
	}
}
