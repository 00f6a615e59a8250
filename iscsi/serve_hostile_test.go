package iscsi_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/test/rig"
)

// reserve executes PERSISTENT RESERVE OUT.
func reserve(s *iscsi.Session, action, kind byte, key, next uint64) error {
	list := make([]byte, 24)
	binary.BigEndian.PutUint64(list, key)
	binary.BigEndian.PutUint64(list[8:], next)
	_, err := s.Do(context.Background(), iscsi.Command{LUN: 1, CDB: []byte{0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0}, Out: list})
	return err
}

// TestServePreemptDuringLogins: PREEMPT AND ABORT looks for the sessions of a nexus while
// other sessions begin and end.
func TestServePreemptDuringLogins(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), nil)
	var disks [2]*iscsi.Disk
	for i := range disks {
		d, err := iscsi.Dial(context.Background(), url(s, "", ""), iscsi.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { rig.Check(t, d.Close()) }()
		disks[i] = d
	}
	a, b := disks[0].Session(), disks[1].Session()
	var all sync.WaitGroup
	var over atomic.Bool
	all.Go(func() {
		defer over.Store(true)
		rig.Check(t, errors.Join(ready(a), ready(b), reserve(a, 6, 0, 0, 1)))
		for range 100 {
			rig.Check(t, reserve(b, 6, 0, 0, 2))
			rig.Check(t, reserve(a, 5, 1, 1, 2))
			rig.Check(t, ready(b))
		}
	})
	for i := byte(0); !over.Load(); i++ {
		logIn(t, s, pdu.ISID{0x80, i}).logOut()
	}
	all.Wait()
}

// ready takes the unit attentions of LUN 1.
func ready(s *iscsi.Session) error {
	for {
		_, err := s.Do(context.Background(), iscsi.Command{LUN: 1, CDB: make([]byte, 6)})
		var status *iscsi.StatusError
		if !errors.As(err, &status) || status.Status != 2 {
			return err
		}
	}
}

// TestServeManyDiscoveries: discovery sessions have no more connections than MaxSessions, so
// that silent ones do not take the descriptors of the process.
func TestServeManyDiscoveries(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), func(c *iscsi.ServerConfig) { c.MaxSessions = 3 })
	var refused *login.Refused
	discover := func() error {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(rig.Deadline())
		m, err := login.NewInitiator(login.InitiatorConfig{Name: "iqn.2026-01.test.stag:bare", ISID: pdu.ISID{0x80}, Tag: 1, CmdSN: 1})
		if err != nil {
			t.Fatal(err)
		}
		b := &bare{t: t, socket: c}
		out := m.Start(nil)
		for done := false; !done && err == nil; {
			b.write(out)
			h, data := b.read()
			out, done, err = m.Step(&h, data, nil)
		}
		return err
	}
	for range 3 {
		rig.Check(t, discover())
	}
	if err := discover(); !errors.As(err, &refused) || refused.Status != pdu.OutOfResources {
		t.Errorf("the fourth: %v", err)
	}
}

// TestServeTransferBeyondMemory: a command of MaxTransfer must be able to get memory.
func TestServeTransferBeyondMemory(t *testing.T) {
	for _, c := range []struct{ transfer, memory int }{{33 << 20, 64 << 20}, {9 << 20, 24 << 20}, {17 << 20, 24 << 20}} {
		s, err := iscsi.Serve(context.Background(), iscsi.ServerConfig{
			Address: "127.0.0.1:0", Memory: c.memory,
			Targets: []iscsi.TargetConfig{{Name: ownTarget, LUNs: map[uint16]iscsi.LUN{1: {Backend: ram(t, 1<<20), MaxTransfer: c.transfer}}}},
		})
		if err == nil {
			rig.Check(t, s.Close())
		}
		if fits := c.transfer != 17<<20; (err == nil) != fits {
			t.Errorf("transfers of %d octets with %d octets of memory: %v", c.transfer, c.memory, err)
		}
	}
}

// TestPostToClosedQueue: the slots of a closed queue are another queue's.
func TestPostToClosedQueue(t *testing.T) {
	s := serveOn(t, ram(t, 1<<20), nil)
	d, err := iscsi.Dial(context.Background(), url(s, "", ""), iscsi.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { rig.Check(t, d.Close()) }()
	q, err := d.Queue(8)
	if err != nil {
		t.Fatal(err)
	}
	rig.Check(t, q.Close())
	if n, err := q.Post(iscsi.IO{Buffers: [][]byte{make([]byte, 512)}}); n != 0 || !errors.Is(err, iscsi.ErrClosed) {
		t.Errorf("posted %d, %v", n, err)
	}
	if n := q.Poll(make([]iscsi.Completion, 1)); n != 0 {
		t.Errorf("polled %d", n)
	}
}
