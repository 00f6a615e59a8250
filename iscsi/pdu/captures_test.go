package pdu_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/test/captures"
)

// direction is what one end of a captured connection sent.
type direction struct {
	name    string
	octets  []byte
	login   int               // length of the login in octets; it has no digests
	keys    map[string]string // the keys of the login
	digests pdu.Digests       // the digests behind the login
}

// directions reads all captured connections over TCP.
func directions(t *testing.T) (all []direction) {
	t.Helper()
	for name, c := range captures.ISCSI(t) {
		client, server := direction{name: name, octets: c.Client.Bytes()}, direction{name: name, octets: c.Server.Bytes()}
		client.readLogin(t, pdu.OpLogin)
		server.readLogin(t, pdu.OpLoginResponse)
		agree(&client, &server)
		all = append(all, client, server)
	}
	return all
}

// agree sets the digests of a connection. The answer is the value without a comma.
func agree(client, server *direction) {
	chosen := func(key string) bool {
		v := server.keys[key]
		if strings.Contains(v, ",") { // the target offered, and the initiator chose
			v = client.keys[key]
		}
		return v == "CRC32C"
	}
	server.digests = pdu.Digests{Header: chosen("HeaderDigest"), Data: chosen("DataDigest")}
	client.digests = server.digests
}

// readLogin reads the PDUs of the login and joins the texts that go on.
func (d *direction) readLogin(t *testing.T, op pdu.Opcode) {
	d.keys = map[string]string{}
	var joined []byte
	for {
		p, _, ok := pdu.Parse(pdu.Digests{}, d.octets[d.login:])
		if !ok || p.Header().Opcode() != op {
			return
		}
		d.login += p.Len()
		if joined = append(joined, p.Data()...); p.Header().Has(pdu.Continue) {
			continue
		}
		text := pdu.NewText(joined)
		for text.Next() {
			d.keys[string(text.Key)] = string(text.Value)
		}
		if text.Err() != nil {
			t.Errorf("%s: text %q: %v", d.name, joined, text.Err())
		}
		joined = nil
	}
}

// at returns the digests of the PDU at an octet of the direction.
func (d *direction) at(offset int) pdu.Digests {
	if offset < d.login {
		return pdu.Digests{}
	}
	return d.digests
}

// pdus parses a direction.
func (d *direction) pdus() (all []pdu.PDU, left int) {
	for at := 0; ; {
		p, _, ok := pdu.Parse(d.at(at), d.octets[at:])
		if !ok {
			return all, len(d.octets) - at
		}
		all, at = append(all, p), at+p.Len()
	}
}

// TestCaptures parses every captured connection whole and makes each PDU again. The
// program that asks one question per connection did the listed things on purpose.
func TestCaptures(t *testing.T) {
	opcodes, wrong := map[pdu.Opcode]int{}, map[string]int{}
	for _, d := range directions(t) {
		all, left := d.pdus()
		if left != 0 {
			wrong[d.name+": a PDU without its end"]++
		}
		at := 0
		for _, p := range all {
			h := p.Header()
			opcodes[h.Opcode()]++
			head, data := p.Intact()
			if !head || !data {
				wrong[d.name+": a wrong digest"]++
			}
			if f := h.Check(); f != pdu.OK {
				wrong[d.name+": "+f.String()]++
			}
			again, copied := pdu.Append(nil, d.at(at), h, p.AHS(), p.Data()), *h
			if sent := withoutPad(p, d.octets[at:at+p.Len()]); head && data && (!bytes.Equal(again, sent) || copied != *h) {
				t.Errorf("%s: %x became %x", d.name, sent, again)
			}
			at += p.Len()
		}
	}
	want := map[string]int{
		"iscsi/probe-lio: a wrong digest":            2,
		"iscsi/probe-lio-erl1: a wrong digest":       3,
		"iscsi/probe-lio: a PDU without its end":     1, // a data segment of 16 MiB announced
		"iscsi/probe-lio: " + pdu.BadLength.String(): 1, // EDTL without R and W
	}
	if !maps.Equal(wrong, want) {
		t.Errorf("found %v, want %v", wrong, want)
	}
	for op := range pdu.Opcode(0x40) {
		if pdu.InfoOf(op).Name != "" && opcodes[op] == 0 && op != pdu.OpAsync {
			t.Errorf("no %v in any capture", op)
		}
	}
}

// withoutPad returns the octets of a PDU with zeros as the pad. LIO leaves octets of an
// earlier text there, in PDUs without digest.
func withoutPad(p pdu.PDU, octets []byte) []byte {
	octets = bytes.Clone(octets)
	if n := p.Header().DataLength(); len(octets) == pdu.HeaderLen+p.Header().AHSLength()+pdu.Padded(n) {
		clear(octets[len(octets)-pdu.Pad(n):])
	}
	return octets
}

// TestCapturesCut cuts each captured PDU at every octet: no part of it is a PDU.
func TestCapturesCut(t *testing.T) {
	for _, d := range directions(t) {
		all, _ := d.pdus()
		at := 0
		for _, p := range all {
			for n := range p.Len() {
				if _, rest, ok := pdu.Parse(d.at(at), d.octets[at:at+n:at+n]); ok || len(rest) != n {
					t.Fatalf("%s: %d of %d octets of %v are a PDU", d.name, n, p.Len(), p.Header().Opcode())
				}
			}
			at += p.Len()
		}
	}
}

// TestCapturesInPieces gives a parser the octets in pieces of random length, and all the
// same PDUs come out.
func TestCapturesInPieces(t *testing.T) {
	rnd := rand.New(rand.NewPCG(15, 7143))
	for _, d := range directions(t) {
		whole, _ := d.pdus()
		var got []byte
		n, buf := 0, []byte(nil)
		for left := d.octets; len(left) > 0; {
			cut := min(1+rnd.IntN(1448), len(left))
			buf, left = append(buf, left[:cut]...), left[cut:]
			for {
				p, rest, ok := pdu.Parse(d.at(len(got)), buf)
				if !ok {
					break
				}
				got = append(got, buf[:p.Len()]...)
				n, buf = n+1, bytes.Clone(rest)
			}
		}
		if n != len(whole) || !bytes.Equal(append(got, buf...), d.octets) {
			t.Fatalf("%s: %d PDUs, want %d", d.name, n, len(whole))
		}
	}
}
