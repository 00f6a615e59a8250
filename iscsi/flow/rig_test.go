package flow

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// wire is a Stream: octets to receive in given cuts, and octets that were emitted.
type wire struct {
	in      [][]byte
	out     []byte
	max     int // result of MaxEmit
	room    int // octets that Emit still takes; -1: any number
	eof     bool
	closed  bool
	aborted bool
}

func newWire(in ...[]byte) *wire { return &wire{in: in, max: 1448, room: -1} }

func (w *wire) Views(dst [][]byte) int { return copy(dst, w.in) }
func (w *wire) Consume(n int) {
	for n > 0 {
		k := min(n, len(w.in[0]))
		if w.in[0] = w.in[0][k:]; len(w.in[0]) == 0 {
			w.in = w.in[1:]
		}
		n -= k
	}
}
func (w *wire) EOF() bool { return w.eof && len(w.in) == 0 }
func (w *wire) Emit(n int) []byte {
	if w.closed || w.room >= 0 && n > w.room {
		return nil
	}
	if w.room >= 0 {
		w.room -= n
	}
	at := len(w.out)
	if cap(w.out)-at < n {
		w.out = append(make([]byte, 0, 2*cap(w.out)+n), w.out...)
	}
	w.out = w.out[:at+n]
	return w.out[at:]
}
func (w *wire) MaxEmit() int { return w.max }
func (w *wire) Room() int    { return 0 }
func (w *wire) Unacked() int { return 0 }
func (w *wire) CloseWrite()  { w.closed = true }
func (w *wire) Abort()       { w.aborted = true }

// listener is a role that records PDUs. It places data segments in its buffer.
type listener struct {
	buf    [][]byte
	got    []string // opcode, reason, and data of each PDU
	refuse Reason   // result of arrived
	end    Reason   // result of complete
	waits  int      // how often each call asks to wait
	waited int
	r      *receiver
}

func (l *listener) wait() bool {
	if l.waited < l.waits {
		l.waited++
		return true
	}
	l.waited = 0
	return false
}

func (l *listener) arrived(h *pdu.Header, _ []byte) (Reason, bool) {
	if l.wait() {
		return OK, true
	}
	if l.buf != nil && h.DataLength() != 0 {
		l.r.place(l.buf, int(h.BufferOffset()))
	}
	return l.refuse, false
}

func (l *listener) complete(h *pdu.Header, why Reason) (Reason, bool) {
	if l.wait() {
		return OK, true
	}
	l.got = append(l.got, h.Opcode().String()+": "+why.String())
	return l.end, false
}

func listen(d pdu.Digests, buf ...[]byte) *listener {
	l := &listener{buf: buf}
	l.r = &receiver{role: l, digests: d, limit: 1 << 20}
	return l
}

// octets reads hexadecimal digits.
func octets(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "|", "").Replace(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// encode returns a PDU as a sender sends it.
func encode(d pdu.Digests, h pdu.Header, ahs, data []byte) []byte {
	x := sender{digests: d}
	*x.header(h.Opcode()) = h
	if len(ahs) != 0 {
		x.extend(ahs)
	}
	x.begin([][]byte{data}, 0, len(data))
	w := newWire()
	if left, ok := x.emit(w); !left || !ok {
		panic("the PDU does not leave")
	}
	return w.out
}

var (
	none = pdu.Digests{}
	both = pdu.Digests{Header: true, Data: true}
)
