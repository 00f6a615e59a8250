package iscsi_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
)

// slowDisk is a RAM disk that lends nothing, and whose reads wait for the test.
type slowDisk struct {
	mem     []byte
	began   chan struct{}
	release chan struct{}
}

func newSlowDisk() *slowDisk {
	return &slowDisk{mem: make([]byte, 1<<20), began: make(chan struct{}, 64), release: make(chan struct{})}
}

func (d *slowDisk) Size() int64 { return int64(len(d.mem)) }
func (d *slowDisk) Sync() error { return nil }
func (d *slowDisk) ReadAt(p []byte, off int64) (int, error) {
	d.began <- struct{}{}
	<-d.release
	return copy(p, d.mem[off:]), nil
}
func (d *slowDisk) WriteAt(p []byte, off int64) (int, error) { return copy(d.mem[off:], p), nil }

// A lying initiator harms nobody: its connection ends, or its command fails, and the
// target's memory comes back. Another session goes on.
func TestISERLyingInitiator(t *testing.T) {
	type lie struct {
		name string
		tell func(r *raw)
		goes bool // the connection goes on
	}
	lies := []lie{
		{"no such STag to write to", func(r *raw) {
			r.lie(pdu.ISERFields{HasRead: true, ReadSTag: 0x7700}, 9, cdb10(0x28, 0, 64), pdu.Read, 64*512)
		}, false},
		{"no such STag to read from", func(r *raw) {
			r.lie(pdu.ISERFields{HasWrite: true, WriteSTag: 0x7700}, 9, cdb10(0x2a, 0, 64), pdu.Write, 64*512)
		}, false},
		{"a base beyond the region", func(r *raw) {
			r.lie(pdu.ISERFields{HasRead: true, ReadSTag: r.mr.RKey(), ReadBase: 1 << 20}, 9, cdb10(0x28, 0, 1), pdu.Read, 512)
		}, false},
		{"a buffer that is too short", func(r *raw) {
			r.lie(pdu.ISERFields{HasWrite: true, WriteSTag: r.mr.RKey(), WriteBase: 1<<20 - 512}, 9, cdb10(0x2a, 0, 4), pdu.Write, 4*512)
		}, false},
		{"a base near the end of the space", func(r *raw) {
			r.lie(pdu.ISERFields{HasWrite: true, WriteSTag: r.mr.RKey(), WriteBase: 1<<64 - 512}, 9, cdb10(0x2a, 0, 4), pdu.Write, 4*512)
		}, false},
		{"an opcode of a target", func(r *raw) { r.put(pdu.ISERFields{}, pdu.OpResponse, 9, nil, nil) }, false},
		{"R2T", func(r *raw) { r.put(pdu.ISERFields{}, pdu.OpR2T, 9, nil, nil) }, false},
		{"an unknown opcode", func(r *raw) { r.put(pdu.ISERFields{}, 0x1d, 9, nil, nil) }, false},
		{"a message that is too long", func(r *raw) {
			r.put(pdu.ISERFields{}, pdu.OpText, 9, make([]byte, 4096), func(h *pdu.Header) { h.SetTargetTransferTag(pdu.NoTag) })
		}, false},
		{"Hello", func(r *raw) { r.octets(pdu.AppendHello(nil, 4)) }, false},
		{"no header", func(r *raw) { r.octets([]byte{0x10}) }, false},
		{"a length beyond the message", func(r *raw) {
			b := pdu.ISERFields{}.Append(nil)
			r.octets(append(b, append([]byte{0x40, 0x80, 0, 0, 0, 0, 9}, make([]byte, 41)...)...))
		}, false},
		{"a gap of CmdSN", func(r *raw) { r.cmdSN++; r.read(9, 0, 1) }, false},
		{"no STag", func(r *raw) { r.lie(pdu.ISERFields{}, 9, cdb10(0x28, 0, 1), pdu.Read, 512); r.check(9) }, true},
		{"only the STag of the other direction", func(r *raw) {
			r.lie(pdu.ISERFields{HasRead: true, ReadSTag: r.mr.RKey()}, 9, cdb10(0x2a, 0, 1), pdu.Write, 512)
			r.check(9)
		}, true},
		{"Data-Out", func(r *raw) {
			r.put(pdu.ISERFields{}, pdu.OpDataOut, 9, make([]byte, 512), nil)
			r.hear(pdu.OpReject, pdu.NoTag)
		}, true},
		{"immediate data", func(r *raw) {
			r.put(pdu.ISERFields{HasWrite: true, WriteSTag: r.mr.RKey()}, pdu.OpCommand, 9, make([]byte, 512), func(h *pdu.Header) {
				h.SetFlags(pdu.Final | pdu.Write)
				h.SetEDTL(512)
				h.SetCDB(cdb10(0x2a, 0, 1))
			})
			r.check(9)
		}, true},
		{"a Login Request", func(r *raw) { r.put(pdu.ISERFields{}, pdu.OpLogin, 9, nil, nil); r.hear(pdu.OpReject, pdu.NoTag) }, true},
		{"an STag that is not read", func(r *raw) {
			r.lie(pdu.ISERFields{HasRead: true, ReadSTag: r.mr.RKey(), HasWrite: true, WriteSTag: 0x7700}, 9, make([]byte, 6), 0, 0)
			r.good(9)
		}, true},
	}
	stage := rig.On(t)
	rig.NoLeaks(stage)
	disk := newSlowDisk()
	close(disk.release)
	s := serveISER(t, disk, nil)
	for i, l := range lies {
		t.Run(l.name, func(t *testing.T) {
			stage := rig.On(t)
			honest := rawISER(stage, s, byte(2*i+100))
			liar := rawISER(stage, s, byte(2*i+101))
			l.tell(liar)
			if l.goes {
				liar.read(20, 3, 2)
				liar.good(20)
			} else {
				select {
				case <-liar.Done():
				case <-liar.Ctx().Done():
					t.Fatal("the connection goes on")
				}
				honest.quiet(1)
			}
			copy(honest.mr.Bytes(), random(1024, uint64(i)))
			honest.write(5, 9, 2)
			honest.good(5)
			if !bytes.Equal(disk.mem[9*512:][:1024], random(1024, uint64(i))) {
				t.Error("wrong octets are written")
			}
			honest.QP().Abort()
			liar.QP().Abort()
			honest.quiet(0)
		})
	}
}

// check fails unless the command ends with CHECK CONDITION.
func (r *raw) check(tag pdu.Tag) {
	r.Helper()
	if status := r.response(tag); status != 2 {
		r.Errorf("command %v has status %#x", tag, status)
	}
}

// octets sends a message.
func (r *raw) octets(b []byte) {
	r.Helper()
	_, err := r.QP().PostSend(rdma.SendWR{Op: rdma.WRSend, Inline: b})
	r.Must(err)
}

// The connection dies in every phase. Nothing is left of it.
func TestISERPeerDeath(t *testing.T) {
	stage := rig.On(t)
	rig.NoLeaks(stage)
	disk := newSlowDisk()
	s := serveISER(t, disk, func(c *iscsi.ServerConfig) {
		c.Targets[0].Users = map[string]string{"alice": secret}
	})
	logIn := func(stage rig.Stage, requests int) *raw {
		r := connectRaw(stage, s)
		m := r.machine(1, &login.Credentials{User: "alice", Secret: login.Secret(secret)})
		out := m.Start(nil)
		for range requests {
			stage.Must(r.SendAll(out))
			msg, err := r.Next(stage.Ctx())
			stage.Must(err)
			var done bool
			out, done, err = m.Step(msg.PDU, msg.Data, nil)
			stage.Must(err)
			stage.Must(r.Release(&msg))
			if done {
				r.cmdSN = m.Params().CmdSN
				stage.Must(r.Start(m.Params().MaxRecvLength, m.Params().MaxSendLength))
				r.command(1, make([]byte, 6), 0, 0)
				r.response(1)
				return r
			}
		}
		return r
	}
	for name, die := range map[string]func(stage rig.Stage) *raw{
		"before the login":   func(stage rig.Stage) *raw { return logIn(stage, 0) },
		"in the login":       func(stage rig.Stage) *raw { return logIn(stage, 1) },
		"after the login":    func(stage rig.Stage) *raw { return logIn(stage, 9) },
		"while a read waits": func(stage rig.Stage) *raw { r := logIn(stage, 9); r.read(2, 0, 64); <-disk.began; return r },
		"while data arrives": func(stage rig.Stage) *raw { r := logIn(stage, 9); r.write(2, 0, 2048); return r },
		"after the logout": func(stage rig.Stage) *raw {
			r := logIn(stage, 9)
			r.put(pdu.ISERFields{}, pdu.OpLogout, 9, nil, func(h *pdu.Header) { h.SetLogoutReason(pdu.CloseSession) })
			r.hear(pdu.OpLogoutResponse, 9)
			return r
		},
	} {
		for how, end := range map[string]func(r *raw){
			"reset": func(r *raw) { r.QP().Abort() },
			"close": func(r *raw) {
				ctx, cancel := context.WithTimeout(r.Ctx(), 5*time.Second)
				defer cancel()
				r.QP().Disconnect(ctx)
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				r := die(rig.On(t))
				end(r)
				<-r.Done()
				if name == "while a read waits" {
					if s.Sessions() != 1 {
						t.Error("the session ends while a goroutine reads for it")
					}
					disk.release <- struct{}{}
				}
				r.quiet(0)
			})
		}
	}
}

// Task management waits for the work of the commands that it ends. Of these nothing is heard
// any more.
func TestISERAborts(t *testing.T) {
	disk := newSlowDisk()
	s := serveISER(t, disk, nil)
	stage := rig.On(t)
	r, other := rawISER(stage, s, 1), rawISER(stage, s, 2)
	for i, f := range []pdu.Function{pdu.AbortTask, pdu.AbortTaskSet, pdu.LogicalUnitReset} {
		r.read(2, i, 64)
		<-disk.began
		r.manage(3, f, 2)
		r.put(pdu.ISERFields{}, pdu.OpNOPOut, 4, nil, func(h *pdu.Header) { h.SetImmediate(true) })
		r.hear(pdu.OpNOPIn, 4)
		disk.release <- struct{}{}
		if h := r.hear(pdu.OpTaskResponse, 3); h.Response() != pdu.FunctionComplete {
			t.Errorf("function %v: response %d", f, h.Response())
		}
	}
	other.command(5, make([]byte, 6), 0, 0)
	other.check(5) // the reset is news for the other session
	r.put(pdu.ISERFields{}, pdu.OpLogout, 9, nil, func(h *pdu.Header) { h.SetLogoutReason(pdu.CloseSession) })
	r.hear(pdu.OpLogoutResponse, 9)
	stage.Must(r.QP().Disconnect(stage.Ctx()))
	other.quiet(1)
}

// A silent initiator is pinged, and its session ends if it does not answer.
func TestISERPings(t *testing.T) {
	s := serveISER(t, ram(t, 1<<20), func(c *iscsi.ServerConfig) { c.Ping = 50 * time.Millisecond })
	r := rawISER(rig.On(t), s, 1)
	for range 2 {
		ping := r.hear(pdu.OpNOPIn, pdu.NoTag)
		r.put(pdu.ISERFields{}, pdu.OpNOPOut, pdu.NoTag, nil, func(h *pdu.Header) {
			h.SetImmediate(true)
			h.SetTargetTransferTag(ping.TargetTransferTag())
		})
	}
	r.ended()
}
