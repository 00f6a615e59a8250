package login

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/test/captures"
)

// captured is the login of a captured connection.
type captured struct {
	name      string
	requests  []byte // octets of the initiator up to the end of the login
	responses []byte
	sent      []map[string]string // keys of each request
	answered  []map[string]string // keys of each response
	first     pdu.Header          // first request
	last      pdu.Header          // last response
}

// logins reads the logins of all captures over TCP.
func logins(t testing.TB) (all []captured) {
	t.Helper()
	for name, conn := range captures.ISCSI(t) {
		c := captured{name: strings.TrimPrefix(name, "iscsi/")}
		var headers []pdu.Header
		c.requests, c.sent, headers = part(conn.Client.Bytes(), pdu.OpLogin)
		if len(headers) > 0 {
			c.first = headers[0]
		}
		c.responses, c.answered, headers = part(conn.Server.Bytes(), pdu.OpLoginResponse)
		if len(headers) > 0 {
			c.last = headers[len(headers)-1]
		}
		all = append(all, c)
	}
	return all
}

// part takes the PDUs of a login from the front of a stream.
func part(stream []byte, op pdu.Opcode) (octets []byte, texts []map[string]string, headers []pdu.Header) {
	rest := stream
	for {
		p, left, ok := pdu.Parse(pdu.Digests{}, rest)
		if !ok || p.Header().Opcode() != op {
			return stream[:len(stream)-len(rest)], texts, headers
		}
		keys := map[string]string{}
		for text := pdu.NewText(p.Data()); text.Next(); {
			keys[string(text.Key)] = string(text.Value)
		}
		texts, headers, rest = append(texts, keys), append(headers, *p.Header()), left
	}
}

// find returns the value of a key in any of the texts.
func find(texts []map[string]string, key string) (string, bool) {
	for _, keys := range texts {
		if v, ok := keys[key]; ok {
			return v, true
		}
	}
	return "", false
}

// outcome says how a login ended.
func outcome(h *pdu.Header) string {
	switch {
	case h.Opcode() != pdu.OpLoginResponse:
		return "no response"
	case h.LoginStatus() != 0:
		return fmt.Sprintf("%04x", uint16(h.LoginStatus()))
	case h.Has(pdu.Transit) && h.NextStage() == full:
		return "full feature phase"
	}
	return "unfinished"
}

// feed gives octets to a machine, cut into two pieces at an offset, and calls step with
// each whole PDU.
func feed(t testing.TB, octets []byte, cut int, step func(h *pdu.Header, data []byte) bool) {
	t.Helper()
	var in Inbox
	for _, piece := range [][]byte{octets[:cut], octets[cut:]} {
		for len(piece) > 0 {
			n := copy(in.Want(), piece)
			piece = piece[n:]
			whole, err := in.Got(n)
			if err != nil {
				t.Fatal(err)
			}
			if whole {
				if !step(in.Header(), in.Data()) {
					return
				}
				in.Reset()
			}
		}
	}
}
