package hostile

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rawpeer"
	"github.com/stag-rdma/stag/tpt"
)

// fault is something that a peer must not send.
type fault struct {
	name  string
	posts func(v *victim) []rdma.SendWR // work requests of the victim meanwhile
	good  func(v *victim) [][]byte      // ULPDUs before the fault
	bad   func(v *victim) []byte        // the ULPDU that is refused
	want  string                        // the Terminate

	receives []rdma.Status // nil means that both were flushed
	requests []rdma.Status
}

// later is a number in messages that follow a fault. They must not be delivered.
const later = 60000

// quotes returns the segment that the Terminate must quote. It is empty if the framing is wrong or the fault is local.
// A refused Read is quoted whole (RFC 5040 §4.8).
func (f fault) quotes(bad []byte) (header, request []byte) {
	switch {
	case f.want[0] == '2', f.want[:3] == "0/0":
		return nil, nil
	case bad[rawpeer.AtDDP]&0x80 != 0:
		return bad[:wire.TaggedLen], nil
	case f.want[:3] == "0/1" && len(bad) == wire.UntaggedLen+wire.ReadRequestLen:
		return bad[:wire.UntaggedLen], bad[wire.UntaggedLen:]
	}
	return bad[:wire.UntaggedLen], nil
}

func (f fault) run(r *rig) {
	v := newVictim(r)
	v.accept(usual, usualParams)
	v.Must(v.peer.Octets(rawpeer.FPDU(rawpeer.Write(0, 0, nil)))) // the victim may send from now on
	if f.posts != nil {
		v.begin(f.posts(v))
	}
	var ulpdus [][]byte
	if f.good != nil {
		ulpdus = f.good(v)
	}
	bad := f.bad(v)
	ulpdus = append(ulpdus, bad, rawpeer.Write(uint32(v.open.RKey()), later, []byte("too late")))
	v.Must(v.peer.Octets(rawpeer.FPDUs(ulpdus...)))
	f.answered(v, bad)
	v.peer.Conn.Close()
	v.over()
	v.blamed(false, f.want)
	receives := f.receives
	if receives == nil {
		receives = flushed
	}
	v.completed(f.requests, receives)
	v.intact()
	v.bury()
}

// begin posts to the send queue, and reads what the victim sends.
func (v *victim) begin(wrs []rdma.SendWR) {
	v.Helper()
	_, err := v.qp.PostSend(wrs...)
	v.Must(err)
	for range wrs {
		_, err := v.peer.FPDU()
		v.Must(err)
	}
}

// answered demands exactly the right Terminate, and a close.
func (f fault) answered(v *victim, bad []byte) {
	v.Helper()
	t, err := v.peer.Terminated()
	v.Must(err)
	header, request := f.quotes(bad)
	if t.String() != f.want {
		v.Errorf("the Terminate says %v, want %s", t, f.want)
	}
	if !bytes.Equal(t.Header, header) || header != nil && int(t.SegmentLen) != len(bad) {
		v.Errorf("the Terminate quotes %x of %d octets, want %x of %d", t.Header, t.SegmentLen, header, len(bad))
	}
	if !bytes.Equal(t.Request, request) {
		v.Errorf("the Terminate quotes the Read Request %x, want %x", t.Request, request)
	}
}

func TestFaults(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, table := range [][]fault{writeFaults(), readFaults(), sendFaults(), headerFaults(), responseFaults()} {
			for _, f := range table {
				r.TB.(*testing.T).Run(f.name, func(t *testing.T) { f.run(r.with(t)) })
			}
		}
	})
}

// target is memory that a peer names, with the expected code by layer: for an RDMA Write the code of DDP, for a Read
// that of RDMAP (RFC 5040 §8, RFC 5041 §7).
type target struct {
	name        string
	stag        func(v *victim) uint32
	to          uint64
	n           int
	write, read string
}

func targets() []target {
	of := func(mr func(v *victim) *rdma.MR) func(*victim) uint32 {
		return func(v *victim) uint32 { return uint32(mr(v).RKey()) }
	}
	open := of(func(v *victim) *rdma.MR { return v.open })
	return []target{
		{"unknown index", func(v *victim) uint32 { return 0xfffff<<8 | uint32(v.open.RKey())&0xff }, 0, 8, "1/1/00", "0/1/00"},
		{"index zero", func(*victim) uint32 { return 0 }, 0, 8, "1/1/00", "0/1/00"},
		{"index beyond the table", func(*victim) uint32 { return 0xffffff01 }, 0, 8, "1/1/00", "0/1/00"},
		{"wrong key", func(v *victim) uint32 { return uint32(v.open.RKey()) ^ 1 }, 0, 8, "1/1/00", "0/1/00"},
		{"revoked", of(func(v *victim) *rdma.MR { return v.revoked }), 0, 8, "1/1/00", "0/1/00"},
		{"deregistered", func(v *victim) uint32 { return uint32(v.closed) }, 0, 8, "1/1/00", "0/1/00"},
		{"foreign protection domain", of(func(v *victim) *rdma.MR { return v.foreign }), 0, 8, "1/1/02", "0/1/03"},
		{"no right of any kind", of(func(v *victim) *rdma.MR { return v.local }), 0, 8, "0/1/02", "0/1/02"},
		{"only the other right", nil, 0, 8, "0/1/02", "0/1/02"},
		{"offset wraps", open, 1<<64 - 4, 8, "1/1/03", "0/1/04"},
		{"one octet beyond", open, regionLen - 7, 8, "1/1/01", "0/1/01"},
		{"right behind the end", open, regionLen, 1, "1/1/01", "0/1/01"},
		{"far behind the end", open, 1 << 40, 8, "1/1/01", "0/1/01"},
		{"last octet there is", open, 1<<64 - 9, 8, "1/1/01", "0/1/01"},
	}
}

func writeFaults() (all []fault) {
	for _, x := range targets() {
		if x.stag == nil {
			x.stag = func(v *victim) uint32 { return uint32(v.readable.RKey()) }
		}
		payload := bytes.Repeat([]byte{0xee}, x.n)
		all = append(all, fault{
			name: "Write/" + x.name, want: x.write,
			bad: func(v *victim) []byte { return rawpeer.Write(x.stag(v), x.to, payload) },
		})
	}
	second := fault{name: "Write/second segment beyond the end", want: "1/1/01"}
	second.good = func(v *victim) [][]byte {
		v.expect(v.open, regionLen-4, []byte("fits"))
		return [][]byte{rawpeer.TaggedSegment(wire.OpWrite, false, uint32(v.open.RKey()), regionLen-4, []byte("fits"))}
	}
	second.bad = func(v *victim) []byte { return rawpeer.Write(uint32(v.open.RKey()), regionLen, []byte("not")) }
	return append(all, second)
}

func readFaults() (all []fault) {
	request := func(v *victim, msn, stag uint32, to uint64, n int) []byte {
		return rawpeer.ReadRequest(msn, rawpeer.Read{
			SinkSTag: 0x100, SinkTO: 7, Size: uint32(n), SourceSTag: tpt.STag(stag), SourceTO: to,
		})
	}
	for _, x := range targets() {
		if x.stag == nil {
			x.stag = func(v *victim) uint32 { return uint32(v.writable.RKey()) }
		}
		all = append(all, fault{
			name: "Read/" + x.name, want: x.read,
			bad: func(v *victim) []byte { return request(v, 1, x.stag(v), x.to, x.n) },
		})
	}
	all = append(all, fault{
		name: "Read/4 GiB less one", want: "0/1/01",
		bad: func(v *victim) []byte { return request(v, 1, uint32(v.open.RKey()), 0, 1<<32-1) },
	})
	for _, x := range []struct {
		name string
		msn  uint32
		want string
	}{{"MSN 0", 0, "1/2/03"}, {"MSN 2", 2, "1/2/03"}, {"MSN of the last", 1<<32 - 1, "1/2/03"}} {
		all = append(all, fault{
			name: "Read/" + x.name, want: x.want,
			bad: func(v *victim) []byte { return request(v, x.msn, uint32(v.open.RKey()), 0, 8) },
		})
	}
	header := rawpeer.Untagged{Op: wire.OpReadRequest, Queue: 1, MSN: 1}
	whole := rawpeer.Read{SinkSTag: 1, Size: 8}.Append(nil)
	all = append(all,
		fault{name: "Read/one octet short", want: "2/0/03", bad: func(*victim) []byte { return header.With(whole[:27]) }},
		fault{name: "Read/header only", want: "2/0/03", bad: func(*victim) []byte { return header.With(nil) }},
		fault{name: "Read/one octet more", want: "1/2/05", bad: func(*victim) []byte { return header.With(append(whole, 0)) }},
	)
	return all
}

func sendFaults() []fault {
	send := func(u rawpeer.Untagged, n int) func(*victim) []byte {
		return func(*victim) []byte { return u.With(bytes.Repeat([]byte{0xdd}, n)) }
	}
	plain := rawpeer.Untagged{Op: wire.OpSend, MSN: 1}
	tooLong := []rdma.Status{rdma.LocalLengthErr, rdma.Flushed}
	refused := []rdma.Status{rdma.RemoteInvalidErr, rdma.Flushed}
	invalidate := func(stag func(v *victim) uint32) func(*victim) []byte {
		return func(v *victim) []byte { return rawpeer.SendInvalidate(1, stag(v), nil) }
	}
	return []fault{
		{name: "Send/longer than its receive", want: "1/2/05", bad: send(plain, recvLen+1), receives: tooLong},
		{name: "Send/grows longer than its receive", want: "1/2/05", receives: tooLong,
			good: func(v *victim) [][]byte {
				v.expect(v.local, 0, bytes.Repeat([]byte{0xdd}, recvLen))
				return [][]byte{rawpeer.Untagged{Op: wire.OpSend, MSN: 1, More: true}.With(bytes.Repeat([]byte{0xdd}, recvLen))}
			},
			bad: send(rawpeer.Untagged{Op: wire.OpSend, MSN: 1, MO: recvLen}, 1)},
		{name: "Send/no receive", want: "1/2/02",
			good: func(*victim) [][]byte { return [][]byte{rawpeer.Send(1, nil), rawpeer.Send(2, nil)} },
			bad:  func(*victim) []byte { return rawpeer.Send(3, nil) }, receives: []rdma.Status{rdma.Success, rdma.Success}},
		{name: "Send/MSN 0", want: "1/2/03", bad: send(rawpeer.Untagged{Op: wire.OpSend}, 4)},
		{name: "Send/MSN 2", want: "1/2/03", bad: send(rawpeer.Untagged{Op: wire.OpSend, MSN: 2}, 4)},
		{name: "Send/offset of nothing", want: "1/2/04", bad: send(rawpeer.Untagged{Op: wire.OpSend, MSN: 1, MO: 4}, 4)},
		{name: "Send/offset wraps", want: "1/2/04", bad: send(rawpeer.Untagged{Op: wire.OpSend, MSN: 1, MO: 1<<32 - 2}, 4)},
		{name: "Send/queue 1", want: "1/2/01", bad: send(rawpeer.Untagged{Op: wire.OpSend, MSN: 1, Queue: 1}, 4)},
		{name: "Send/queue 3", want: "1/2/01", bad: send(rawpeer.Untagged{Op: wire.OpSend, MSN: 1, Queue: 3}, 4)},
		{name: "Send/queue 4 thousand million", want: "1/2/01", bad: send(rawpeer.Untagged{Op: wire.OpSend, MSN: 1, Queue: 1<<32 - 1}, 4)},
		{name: "Send/changes its opcode", want: "0/2/06",
			good: func(v *victim) [][]byte {
				v.expect(v.local, 0, []byte("half"))
				return [][]byte{rawpeer.Untagged{Op: wire.OpSend, MSN: 1, More: true}.With([]byte("half"))}
			},
			bad: send(rawpeer.Untagged{Op: wire.OpSendSE, MSN: 1, MO: 4}, 4)},
		{name: "Send with Invalidate/unknown", want: "0/2/09", receives: refused, bad: invalidate(func(*victim) uint32 { return 0xabcdef01 })},
		{name: "Send with Invalidate/zero", want: "0/2/09", receives: refused, bad: invalidate(func(*victim) uint32 { return 0 })},
		{name: "Send with Invalidate/wrong key", want: "0/2/09", receives: refused,
			bad: invalidate(func(v *victim) uint32 { return uint32(v.open.RKey()) ^ 1 })},
		{name: "Send with Invalidate/foreign", want: "0/1/09", receives: refused,
			bad: invalidate(func(v *victim) uint32 { return uint32(v.foreign.RKey()) })},
		{name: "Send with Invalidate/not the peer's to use", want: "0/1/09", receives: refused,
			bad: invalidate(func(v *victim) uint32 { return uint32(v.local.RKey()) })},
		{name: "Send with Invalidate/several streams'", want: "0/1/09", receives: refused,
			bad: invalidate(func(v *victim) uint32 { return uint32(v.open.RKey()) })},
	}
}

func headerFaults() (all []fault) {
	write := func(v *victim) []byte { return rawpeer.Write(uint32(v.open.RKey()), 0, []byte("never")) }
	send := func(*victim) []byte { return rawpeer.Send(1, []byte("never")) }
	spoil := func(name, want string, of func(*victim) []byte, at int, with byte) {
		all = append(all, fault{name: "header/" + name, want: want,
			bad: func(v *victim) []byte { return rawpeer.Spoiled(of(v), at, with) }})
	}
	for _, version := range []byte{0, 2, 3} {
		spoil(fmt.Sprintf("tagged DDP version %d", version), "1/1/04", write, rawpeer.AtDDP, 0xc0|version)
		spoil(fmt.Sprintf("untagged DDP version %d", version), "1/2/06", send, rawpeer.AtDDP, 0x40|version)
		spoil(fmt.Sprintf("RDMAP version %d in a Write", version), "0/2/05", write, rawpeer.AtRDMAP, version<<6)
		spoil(fmt.Sprintf("RDMAP version %d in a Send", version), "0/2/05", send, rawpeer.AtRDMAP, version<<6|3)
	}
	for op := byte(8); op < 16; op++ {
		spoil(fmt.Sprintf("opcode %d untagged", op), "0/2/06", send, rawpeer.AtRDMAP, 0x40|op)
		spoil(fmt.Sprintf("opcode %d tagged", op), "0/2/06", write, rawpeer.AtRDMAP, 0x40|op)
	}
	spoil("Send in a tagged segment", "0/2/06", write, rawpeer.AtRDMAP, 0x43)
	spoil("Read Request in a tagged segment", "0/2/06", write, rawpeer.AtRDMAP, 0x41)
	spoil("Terminate in a tagged segment", "0/2/06", write, rawpeer.AtRDMAP, 0x47)
	spoil("Write in an untagged segment", "0/2/06", send, rawpeer.AtRDMAP, 0x40)
	spoil("Read Response in an untagged segment", "0/2/06", send, rawpeer.AtRDMAP, 0x42)
	for n := wire.TaggedLen; n < wire.UntaggedLen; n++ {
		all = append(all, fault{
			name: fmt.Sprintf("header/untagged, cut after %d octets", n), want: "2/0/03",
			bad: func(v *victim) []byte { return send(v)[:n] },
		})
	}
	return all
}

// responseFaults are wrong answers to a Read of 16 octets into offset 100 of
// the region "writable".
func responseFaults() []fault {
	const sink, size = 100, 16
	read := func(v *victim) []rdma.SendWR {
		return []rdma.SendWR{{ID: 1, Op: rdma.WRRead, SGL: []rdma.SGE{v.writable.SGE(sink, size)}, RKey: 0x500}}
	}
	stag := func(v *victim) uint32 { return uint32(v.writable.RKey()) }
	full := bytes.Repeat([]byte{0xcc}, size)
	answer := func(name, want string, bad func(v *victim) []byte) fault {
		return fault{name: "Response/" + name, want: want, bad: bad, posts: read, requests: []rdma.Status{rdma.BadResponseErr}}
	}
	half := func(f fault) fault {
		f.good = func(v *victim) [][]byte {
			v.expect(v.writable, sink, full[:8])
			return [][]byte{rawpeer.TaggedSegment(wire.OpReadResponse, false, stag(v), sink, full[:8])}
		}
		return f
	}
	return []fault{
		{name: "Response/unasked", want: "0/2/06",
			bad: func(v *victim) []byte { return rawpeer.ReadResponse(stag(v), sink, full) }},
		{name: "Response/unasked and empty", want: "0/2/06",
			bad: func(v *victim) []byte { return rawpeer.ReadResponse(0, 0, nil) }},
		answer("another region", "1/1/00", func(v *victim) []byte { return rawpeer.ReadResponse(uint32(v.open.RKey()), sink, full) }),
		answer("another key", "1/1/00", func(v *victim) []byte { return rawpeer.ReadResponse(stag(v)^1, sink, full) }),
		answer("one octet before", "1/1/01", func(v *victim) []byte { return rawpeer.ReadResponse(stag(v), sink-1, full) }),
		answer("one octet behind", "1/1/01", func(v *victim) []byte { return rawpeer.ReadResponse(stag(v), sink+1, full) }),
		answer("too long", "1/1/01", func(v *victim) []byte { return rawpeer.ReadResponse(stag(v), sink, append(full, 0)) }),
		answer("ends early", "1/1/01", func(v *victim) []byte { return rawpeer.ReadResponse(stag(v), sink, full[:15]) }),
		answer("empty", "1/1/01", func(v *victim) []byte { return rawpeer.ReadResponse(stag(v), sink, nil) }),
		answer("does not end", "1/1/01", func(v *victim) []byte {
			return rawpeer.TaggedSegment(wire.OpReadResponse, false, stag(v), sink, full)
		}),
		half(answer("second half again the first", "1/1/01", func(v *victim) []byte {
			return rawpeer.ReadResponse(stag(v), sink, full[:8])
		})),
		half(answer("second half too long", "1/1/01", func(v *victim) []byte {
			return rawpeer.ReadResponse(stag(v), sink+8, full[:9])
		})),
		{name: "Response/one too many", want: "0/2/06", posts: read,
			requests: []rdma.Status{},
			good: func(v *victim) [][]byte {
				v.expect(v.writable, sink, full)
				return [][]byte{rawpeer.ReadResponse(stag(v), sink, full)}
			},
			bad: func(v *victim) []byte { return rawpeer.ReadResponse(stag(v), sink, full) }},
	}
}
