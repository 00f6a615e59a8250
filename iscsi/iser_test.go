package iscsi_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/iser"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/rdma"
)

// Disks over iSER: data moves by RDMA Write and Read, with both kinds of answers, and with
// and without immediate data.
func TestISER(t *testing.T) {
	for _, plain := range []bool{false, true} {
		for _, immediate := range []bool{false, true} {
			t.Run(fmt.Sprintf("plain %v immediate %v", plain, immediate), func(t *testing.T) {
				s, p := scripted(t, func(p *peer) { p.plain, p.immediate = plain, immediate })
				d, err := iscsi.Dial(s.Ctx(), p.url(""), iscsi.Config{})
				s.Must(err)
				defer d.Close()
				for i, n := range []int{512, 8192, 8704, 64 << 10, 1 << 20, 3 << 20} {
					want := random(n, uint64(i))
					if _, err := d.WriteAt(want, 4096); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(p.disk[4096:4096+n], want) {
						t.Fatalf("%d octets: the disk has others", n)
					}
					got := make([]byte, n)
					if _, err := d.ReadAt(got, 4096); err != nil || !bytes.Equal(got, want) {
						t.Fatalf("%d octets are read wrong: %v", n, err)
					}
				}
				s.Must(d.Sync())
			})
		}
	}
}

// TestISERReconnects resets the connection in the middle of verified writes and reads: each
// IO completes once, and no octet is wrong.
func TestISERReconnects(t *testing.T) {
	for plain, size := range map[bool]int{false: 4 << 10, true: 256 << 10} {
		t.Run(fmt.Sprint("plain ", plain, " ", size), func(t *testing.T) {
			s, p := scripted(t, func(p *peer) { p.plain, p.immediate = plain, true })
			var ups atomic.Int32
			d, err := iscsi.Dial(s.Ctx(), p.url(""), iscsi.Config{Events: func(e iscsi.Event) {
				if e.Kind == iscsi.EventUp {
					ups.Add(1)
				}
			}})
			s.Must(err)
			defer func() { s.Check(d.Close()) }()
			outages(s, newLoad(t, d, 16, size), 2, p.kill)
			if ups.Load() == 0 {
				t.Error("no second login")
			}
		})
	}
}

// TestISERPieces reads and writes lists of buffers: those that a page list can have, and
// others.
func TestISERPieces(t *testing.T) {
	s, p := scripted(t, nil)
	d, err := iscsi.Dial(s.Ctx(), p.url(""), iscsi.Config{})
	s.Must(err)
	defer d.Close()
	q, err := d.Queue(4)
	s.Must(err)
	for i, lengths := range [][]int{{512, 512}, {100, 4096, 8192, 924}, {512, 1024, 512}, {1, 2, 3, 506}, {4096, 0, 512}, {0, 512}} {
		var in, out [][]byte
		var all []byte
		for j, n := range lengths {
			b := random(n, uint64(i*100+j))
			out, in, all = append(out, b), append(in, make([]byte, n)), append(all, b...)
		}
		complete := func(io iscsi.IO) {
			t.Helper()
			_, err := q.Post(io)
			s.Must(err)
			s.Must(q.Wait(s.Ctx()))
			var got [1]iscsi.Completion
			if q.Poll(got[:]) != 1 || got[0].Err != nil || got[0].Length != len(all) {
				t.Fatalf("%v: %+v", lengths, got)
			}
		}
		complete(iscsi.IO{Op: iscsi.Write, LBA: 3, Buffers: out})
		if !bytes.Equal(p.disk[3*512:][:len(all)], all) {
			t.Fatalf("%v: wrong octets are written", lengths)
		}
		complete(iscsi.IO{Op: iscsi.Read, LBA: 3, Buffers: in})
		if !bytes.Equal(bytes.Join(in, nil), all) {
			t.Fatalf("%v: wrong octets are read", lengths)
		}
	}
	s.Must(q.Close())
}

// A report has the session, and what it has moved.
func TestISERReport(t *testing.T) {
	s, p := scripted(t, nil)
	a, err := rdma.Open(rdma.Config{KernelPort: true, NoControl: true})
	s.Must(err)
	defer a.Close()
	d, err := iscsi.Dial(s.Ctx(), p.url(""), iscsi.Config{Adapter: a})
	s.Must(err)
	defer d.Close()
	_, err = d.ReadAt(make([]byte, 1<<20), 0)
	s.Must(err)
	r, err := a.Report(s.Ctx())
	s.Must(err)
	if len(r.ISCSI) != 1 || r.ISCSI[0].Carrier != "iser" || r.ISCSI[0].State != "up" || r.ISCSI[0].Local == nil {
		t.Fatalf("%+v", r.ISCSI)
	}
	for _, c := range r.ISCSI[0].Counters {
		if c.Name == "placed_octets" && c.Value < 1<<20 {
			t.Errorf("%+v", c)
		}
	}
}

// TestISERLies: a target that breaks the rules touches nothing but the buffers of its
// command, and ends its connection; the session goes on over another one.
func TestISERLies(t *testing.T) {
	send := func(op rdma.SendWR) func(*peerConn, rdma.STag, uint64) {
		return func(c *peerConn, stag rdma.STag, base uint64) {
			op.RKey, op.RemoteAddr, op.SGL = op.RKey+stag, op.RemoteAddr+base, []rdma.SGE{c.disk.SGE(0, 512)}
			c.write(op)
		}
	}
	raw := func(change func(b []byte) []byte) func(*peerConn, rdma.STag, uint64) {
		return func(c *peerConn, _ rdma.STag, _ uint64) {
			b := append(pdu.ISERFields{}.Append(nil), make([]byte, pdu.HeaderLen)...)
			(*pdu.Header)(b[pdu.ISERHeaderLen:]).Reset(pdu.OpResponse)
			c.write(rdma.SendWR{Op: rdma.WRSend, Inline: change(b)})
		}
	}
	for name, lie := range map[string]func(c *peerConn, stag rdma.STag, base uint64){
		"a Write behind the buffer":  send(rdma.SendWR{Op: rdma.WRWrite, RemoteAddr: 1}),
		"a Write to another STag":    send(rdma.SendWR{Op: rdma.WRWrite, RKey: 1}),
		"a Read of a read's buffer":  send(rdma.SendWR{ID: 1 << 40, Op: rdma.WRRead}),
		"a message without a header": raw(func(b []byte) []byte { return b[:10] }),
		"a Hello":                    raw(func(b []byte) []byte { b[0] = 0x20; return b }),
		"a wrong length":             raw(func(b []byte) []byte { return append(b, 1, 2, 3, 4, 5) }),
		"a Data-In":                  raw(func(b []byte) []byte { b[pdu.ISERHeaderLen] = 0x25; return b }),
		"another end's opcode":       raw(func(b []byte) []byte { b[pdu.ISERHeaderLen] = 0x01; return b }),
		"a StatSN too far": raw(func(b []byte) []byte {
			(*pdu.Header)(b[pdu.ISERHeaderLen:]).SetStatSN(1 << 20)
			return b
		}),
	} {
		t.Run(name, func(t *testing.T) {
			var lies atomic.Int32
			s, p := scripted(t, func(p *peer) {
				p.script = func(c *peerConn, m *iser.Message) bool {
					if m.PDU.Opcode() != pdu.OpCommand || m.PDU.CDB()[0] != 0x28 || lies.Add(1) != 1 {
						return false
					}
					stag, base, _ := m.ISER.Read()
					lie(c, stag, base)
					return true
				}
			})
			want := random(512, 1)
			copy(p.disk[512:], want)
			var held atomic.Value
			d, err := iscsi.Dial(s.Ctx(), p.url(""), iscsi.Config{Events: func(e iscsi.Event) {
				if e.Kind == iscsi.EventHeld {
					held.Store(e.Err)
				}
			}})
			s.Must(err)
			defer func() { s.Check(d.Close()) }()
			all := make([]byte, 1536) // the buffer is in the middle
			if _, err := d.ReadAt(all[512:1024:1024], 512); err != nil || !bytes.Equal(all[512:1024], want) {
				t.Errorf("the read is not repeated: %v", err)
			}
			if !bytes.Equal(all[:512], make([]byte, 512)) || !bytes.Equal(all[1024:], make([]byte, 512)) {
				t.Error("octets beside the buffer have changed")
			}
			if held.Load() == nil {
				t.Error("the connection has not ended")
			}
			t.Log(held.Load())
		})
	}
}
