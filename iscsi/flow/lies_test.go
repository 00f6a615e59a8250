package flow

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// field is a part of a header that a lying target chooses.
type field struct{ at, len int }

var fields = []field{{1, 1}, {2, 2}, {16, 4}, {20, 4}, {24, 4}, {28, 4}, {32, 4}, {36, 4}, {40, 4}, {44, 4}}

// TestRandomLies sends PDUs with any values in any fields, for commands in progress. No
// octet outside of the buffers of the commands in progress changes, nothing panics, and
// every command completes at most once.
func TestRandomLies(t *testing.T) {
	rounds := 100000
	if testing.Short() {
		rounds = 10000
	}
	luck := rand.New(rand.NewPCG(3, 4))
	opcodes := []pdu.Opcode{pdu.OpDataIn, pdu.OpDataIn, pdu.OpDataIn, pdu.OpR2T, pdu.OpResponse, pdu.OpNOPIn, pdu.OpReject, pdu.OpAsync, pdu.OpTextResponse}
	data := bytes.Repeat([]byte{0x11}, 400)
	var e *end
	var in, out guarded
	var sent []caught
	busy := map[uint64]bool{}
	for i := range rounds {
		if e == nil || e.w.aborted {
			p := usual()
			p.Digests = none
			p.MaxCmdSN = p.CmdSN + 1<<30
			e = begin(t, p, 3)
			clear(busy)
		}
		for id, op := range [][]byte{1: read10, 2: write10} {
			if op == nil || busy[uint64(id)] {
				continue
			}
			c := Command{ID: uint64(id), CDB: op}
			g := guardedBuf(300)
			if id == 1 {
				in, c.In = g, [][]byte{g.buf[:100], g.buf[100:]}
			} else {
				out, c.Out = g, [][]byte{g.buf}
			}
			sent = append(sent[:0:0], append(sent, e.post(c)...)...)
			busy[uint64(id)] = true
		}
		if len(sent) > 4 {
			sent = sent[len(sent)-4:]
		}
		op := opcodes[luck.IntN(len(opcodes))]
		tag := sent[luck.IntN(len(sent))].h.InitiatorTaskTag()
		octets := e.pdu(op, tag, func(h *pdu.Header) {
			h.SetDataSN(uint32(luck.IntN(2)))
			h.SetBufferOffset(uint32(luck.IntN(320)))
			h.SetDesiredLength(uint32(luck.IntN(320)))
			for range luck.IntN(3) {
				f := fields[luck.IntN(len(fields))]
				if f.at != 24 { // StatSN, which pdu sets
					h[f.at+luck.IntN(f.len)] = byte(luck.Uint32())
				}
			}
		}, data[:luck.IntN(len(data))*int(b2i(pdu.InfoOf(op).Data))])
		cut := luck.IntN(len(octets))
		for _, part := range [][]byte{octets[:cut], octets[cut:]} {
			if len(part) != 0 {
				e.hears(part)
			}
		}
		e.sent()
		for {
			if _, ok := e.event(); !ok {
				break
			}
		}
		var got [4]Completion
		for _, c := range got[:e.q.Poll(got[:])] {
			if !busy[c.ID] {
				t.Fatalf("round %d: command %d completes twice", i, c.ID)
			}
			busy[c.ID] = false
		}
		if !in.whole() || !out.whole() || !bytes.Equal(out.buf, bytes.Repeat([]byte{0xee}, 300)) {
			t.Fatalf("round %d: %v touches memory that is not its command's", i, op)
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// FuzzInitiator gives an Initiator any octets of a target.
func FuzzInitiator(f *testing.F) {
	e := begin(f, usual(), 3)
	tag := e.post(Command{CDB: read10, In: [][]byte{make([]byte, 300)}})[0].h.InitiatorTaskTag()
	f.Add(e.dataIn(tag, 0, 0, 0, make([]byte, 100)), uint8(5), true)
	f.Add(e.response(tag, 2, make([]byte, 20)), uint8(50), false)
	f.Add(e.r2t(tag, 0, 0, 10), uint8(1), true)
	f.Fuzz(func(t *testing.T, octets []byte, cut uint8, digests bool) {
		p := usual()
		if !digests {
			p.Digests = none
		}
		e := begin(t, p, 3)
		in, out := guardedBuf(300), guardedBuf(300)
		sent := e.post(Command{ID: 1, CDB: read10, In: [][]byte{in.buf}}, Command{ID: 2, CDB: write10, Out: [][]byte{out.buf}})
		if len(octets) >= pdu.HeaderLen { // the first PDU has a tag that is valid
			octets = bytes.Clone(octets)
			h := (*pdu.Header)(octets)
			h.SetInitiatorTaskTag(sent[int(cut)%2].h.InitiatorTaskTag())
			if digests && len(octets) >= 52 && h.AHSLength() == 0 {
				pdu.PutDigest(octets[48:], pdu.HeaderDigest(h, nil))
			}
		}
		for len(octets) > 0 {
			n := min(len(octets), 1+int(cut))
			e.hears(octets[:n])
			octets = octets[n:]
			e.f.Transmit(1, e.w)
			e.event()
		}
		if !in.whole() || !out.whole() || !bytes.Equal(out.buf, bytes.Repeat([]byte{0xee}, 300)) {
			t.Fatal("memory outside of the read's buffer is touched")
		}
	})
}

// TestMemoryGone: the application unmaps the buffer of a command in flight. The process
// goes on, and the command fails.
func TestMemoryGone(t *testing.T) {
	mapped := func() []byte {
		mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		return mem
	}
	e := begin(t, usual(), 2)
	mem := mapped()
	tag := e.post(Command{ID: 1, CDB: read10, In: [][]byte{mem}})[0].h.InitiatorTaskTag()
	if err := unix.Mprotect(mem, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	e.hears(e.dataIn(tag, 0, 0, pdu.Final|pdu.StatusPresent, make([]byte, 4096)))
	if c := e.done(); c.Why != MemoryGone || e.w.aborted {
		t.Errorf("a read: %v, aborted %v", c.Why, e.w.aborted)
	}
	if _, err := e.q.Post(Command{ID: 2, CDB: write10, Out: [][]byte{mem}}); err != nil {
		t.Fatal(err)
	}
	e.f.Transmit(1, e.w)
	if e.f.broken != Unreadable || !e.w.aborted {
		t.Errorf("a write: %v, aborted %v", e.f.broken, e.w.aborted)
	}
	if err := unix.Munmap(mem); err != nil {
		t.Fatal(err)
	}
}
