package octets

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/stream"
)

// An Echo and a Transfer that leave again and again end as those that stay.
func TestPortable(t *testing.T) {
	leave := func(u stream.ULP) stream.ULP {
		t.Helper()
		o, err := u.(portable.ULP).Export(1)
		if err != nil {
			t.Fatal(err)
		}
		next, err := Import(o)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	var u stream.ULP = NewTransfer(Plan{Send: 10000, Seed: 5, Expect: 10000, PeerSeed: 5, Chunk: 7})
	w := &wire{room: 50, max: 13}
	w.turn()
	for range 10000 {
		u.Transmit(1, w)
		w.turn()
		u = leave(u)
		u.Receive(1, w)
		if w.aborted || w.EOF() {
			break
		}
	}
	u.Fault(1, nil)
	tr := u.(*Transfer)
	if sent, received := tr.Sums(); tr.Err() != nil || sent != received || tr.Received() != 10000 {
		t.Errorf("%v, sums %x and %x of %d octets", tr.Err(), sent, received, tr.Received())
	}

	u = NewEcho()
	e := &wire{room: 5, max: 3, in: []byte("hello, world"), out: make([]byte, 0, 5), eof: true}
	var got []byte
	for range 10 {
		u = leave(u)
		u.Receive(1, e)
		got, e.out = append(got, e.out...), e.out[:0]
	}
	if string(got) != "hello, world" || u.(*Echo).Echoed() != 12 || !e.closed {
		t.Errorf("%q, %d echoed, closed %v", got, u.(*Echo).Echoed(), e.closed)
	}
}

func TestImportRefuses(t *testing.T) {
	if _, err := Import(portable.Object{Kind: "rdmap/1"}); !errors.Is(err, portable.ErrKind) {
		t.Error(err)
	}
	o, err := NewTransfer(Plan{Send: 5, Sent: 5}).Export(1)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]portable.Object{
		"too short": {Kind: o.Kind, Data: o.Data[1:]},
		"too long":  {Kind: o.Kind, Data: append(o.Data[:len(o.Data):len(o.Data)], 0)},
		"more sent": {Kind: o.Kind, Data: append([]byte{4}, o.Data[1:]...)},
		"echo":      {Kind: echoKind, Data: o.Data},
	} {
		if _, err := Import(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	failed := NewTransfer(Plan{})
	failed.complaint = errors.New("wrong")
	if _, err := failed.Export(1); err == nil {
		t.Error("a Transfer that has failed has left")
	}
}
