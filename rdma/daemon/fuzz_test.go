package daemon

import (
	"encoding/binary"
	"testing"

	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/test/rig"
)

// FuzzRequests executes requests of any content for one client. The daemon answers each, and
// nothing is left when the client has gone. data is a list of requests: a number of octets
// that differ from 0, and for each a place and a value.
func FuzzRequests(f *testing.F) {
	for op := range handlers {
		f.Add([]byte{1, 0, 0, byte(op)})
		f.Add([]byte{4, 0, 0, byte(op), 0, 8, 1, 0, 16, 1, 0, 24, 1})
	}
	f.Add([]byte{1, 0, 0, byte(proto.OpPD), 3, 0, 0, byte(proto.OpCQ), 0, 32, 4, 0, 16, 0, 4, 0, 0, byte(proto.OpQP), 0, 16, 1, 0, 24, 2, 0, 32, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newScene(t, func(c *Config) {
			c.Quota = Quota{Rings: 1 << 22, CQSlots: 1 << 12, Mapped: 1 << 20}
		})
		c := s.client(t)
		e := c.everything()
		for len(data) > 0 {
			m := &proto.Message{}
			data = change(m, data, e)
			if m.PrivateLen > proto.PrivateMax {
				continue // ends the connection
			}
			answer, fds, _ := c.exchange(m)
			closeAll(fds)
			if answer.Op != m.Op {
				t.Fatalf("answer to op %d is one to %d", m.Op, answer.Op)
			}
		}
		c.close()
		s.Eventually("nothing is left", func() bool {
			at, err := s.adapter.Attributes()
			return err == nil && s.daemon.Clients() == 0 && at.QPs == 0 && at.Regions == 0
		})
	})
}

// change sets octets of a message. A value above 200 in the place of a handle becomes one of
// the client's.
func change(m *proto.Message, data []byte, e everything) []byte {
	n := int(data[0])
	data = data[1:]
	octets := m.Bytes()
	for ; n > 0 && len(data) >= 3; n-- {
		at, value := int(binary.BigEndian.Uint16(data))%len(octets), data[2]
		data = data[3:]
		if known := e.handles(); at%8 == 0 && at >= 8 && at < len(octets)-8 && value > 200 {
			binary.NativeEndian.PutUint64(octets[at:], known[proto.Kind(value-200)])
			continue
		}
		octets[at] = value
	}
	if n > 0 {
		return nil
	}
	return data
}

// FuzzHello connects, and sends octets of any kind. The daemon ends the connection or answers,
// and goes on.
func FuzzHello(f *testing.F) {
	hello := &proto.Message{Op: proto.OpHello}
	*hello.Hello() = proto.Hello{Version: proto.Version, Layout: proto.LayoutVersion, MessageLen: uint32(proto.MessageLen)}
	f.Add(hello.Bytes())
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(make([]byte, proto.MessageLen))
	s := newScene(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 1<<16 {
			return
		}
		c := connectTo(t, s.path)
		c.conn.SetDeadline(rig.Deadline())
		if _, err := c.conn.Write(data); err != nil {
			t.Fatal(err)
		}
		var m proto.Message
		if fds, err := readMessage(c.conn, &m); err == nil {
			closeAll(fds)
			if m.Err == 0 {
				t.Errorf("op %d has succeeded", m.Op)
			}
			c.ended()
		}
		s.client(t).pd()
	})
}
