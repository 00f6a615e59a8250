package upgrade

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/rig"
)

// ends returns both ends of a connection. The first is the old process's.
func ends(t testing.TB) (old, fresh *net.UnixConn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(context.Background(), path)
	rig.Must(t, err)
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		var err error
		old, err = Accept(context.Background(), l, nil)
		accepted <- err
	}()
	fresh, err = Connect(context.Background(), path)
	rig.Must(t, errors.Join(err, <-accepted))
	t.Cleanup(func() { old.Close(); fresh.Close() })
	return old, fresh
}

func good() hello { return hello{Version: Version, PID: 1, Layout: bpf.Layout()} }

// TestBeginRefuses: a new process names what is wrong with the old one, and tells it.
func TestBeginRefuses(t *testing.T) {
	raw := func(head ...byte) func(*link) error {
		return func(l *link) error {
			_, err := l.conn.Write(append(head, make([]byte, headLen-len(head))...))
			return err
		}
	}
	long := func(doc uint32, data uint64) func(*link) error {
		return func(l *link) error {
			var head [headLen]byte
			head[headKind] = byte(kindHello)
			binary.LittleEndian.PutUint16(head[headMagic:], magic)
			binary.LittleEndian.PutUint32(head[headDoc:], doc)
			binary.LittleEndian.PutUint64(head[headData:], data)
			_, err := l.conn.Write(head[:])
			return err
		}
	}
	for _, c := range []struct {
		name, want string
		say        func(*link) error
	}{
		{"another protocol", "does not speak the protocol", raw('G', 'E', 'T', ' ', '/')},
		{"kind 0", "does not speak the protocol", raw(0, 0, 0x47, 0x55)},
		{"kind 99", "does not speak the protocol", raw(99, 0, 0x47, 0x55)},
		{"missing descriptors", "0 of 3 descriptors", raw(byte(kindHello), 3, 0x47, 0x55)},
		{"long document", "is too long", long(maxDoc+1, 0)},
		{"much data", "is too long", long(0, maxData+1)},
		{"nothing", "has closed the connection", func(l *link) error { return l.conn.Close() }},
		{"cut", "has closed the connection", func(l *link) error {
			return errors.Join(long(100, 0)(l), l.conn.Close())
		}},
		{"no JSON", "read hello", func(l *link) error { return l.send(kindHello, json.RawMessage(`"x"`), nil) }},
		{"another message", "says commit instead of hello", func(l *link) error { return l.send(kindCommit, nil, nil) }},
		{"abort", "keeps its connections: no reason", func(l *link) error { return l.send(kindAbort, reason{"no reason"}, nil) }},
		{"version", "version 99", func(l *link) error { h := good(); h.Version = 99; return l.send(kindHello, h, nil) }},
		{"layout", "layout version 9999", func(l *link) error { h := good(); h.Layout.Version = 9999; return l.send(kindHello, h, nil) }},
		{"too few ports", "has closed the connection", func(l *link) error {
			h := good()
			h.Ports = 1
			return errors.Join(l.send(kindHello, h, nil), l.conn.Close())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			old, fresh := ends(t)
			l := &link{conn: old}
			rig.Must(t, c.say(l))
			_, err := Begin(context.Background(), fresh)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%v, want %q in one line", err, c.want)
			}
			l.until(rig.Deadline()) // fails if say has closed the connection
			if _, err := l.expect(kindReady, nil); err == nil {
				t.Error("the old process was told that all is well")
			}
		})
	}
}

// TestOfferGivesUp: an old process whose successor does not behave goes on, and says why. None
// of its connections has been touched.
func TestOfferGivesUp(t *testing.T) {
	for _, c := range []struct {
		name, want string
		say        func(*link) error
	}{
		{"refusal", "the new process refuses: no disk", func(l *link) error { return l.send(kindRefuse, reason{"no disk"}, nil) }},
		{"end", "has closed the connection", func(l *link) error { return nil }},
		{"another message", "says done instead of ready", func(l *link) error { return l.send(kindDone, doneDoc{}, nil) }},
		{"garbage", "does not speak the protocol", func(l *link) error { _, err := l.conn.Write(make([]byte, 64)); return err }},
	} {
		t.Run(c.name, func(t *testing.T) {
			old, fresh := ends(t)
			go func() {
				l := &link{conn: fresh}
				m, err := l.expect(kindHello, nil)
				if err == nil {
					m.close()
					err = c.say(l)
				}
				if err != nil {
					t.Error(err)
				}
				fresh.Close()
			}()
			o := Offer{Thaw: func() { t.Error("thawed without a freeze") }}
			_, err := o.Run(context.Background(), old)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q in one line", err, c.want)
			}
		})
	}
}

// TestOfferEndsWithItsContext: the old process waits for its successor until its context ends.
func TestOfferEndsWithItsContext(t *testing.T) {
	old, fresh := ends(t)
	go func() { // says nothing, and leaves when it is told
		l := &link{conn: fresh}
		for {
			m, err := l.receive()
			if err != nil {
				break
			}
			m.close()
			if m.kind == kindAbort {
				break
			}
		}
		fresh.Close()
	}()
	ctx, cancel := context.WithCancelCause(context.Background())
	enough := errors.New("enough")
	o := Offer{At: func(step string) {
		if step == kindReady.String() {
			cancel(enough)
		}
	}}
	if _, err := o.Run(ctx, old); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}

// TestMessagesCarryDescriptors sends messages of all sizes with descriptors.
func TestMessagesCarryDescriptors(t *testing.T) {
	old, fresh := ends(t)
	from, to := &link{conn: old}, &link{conn: fresh}
	for _, n := range []int{0, 1, maxFiles} {
		for _, size := range []int{0, 1, 64 << 10, 3 << 20} {
			var files []*os.File
			for range n {
				f, err := os.CreateTemp(t.TempDir(), "")
				rig.Must(t, err)
				_, err = fmt.Fprint(f, size)
				rig.Must(t, err)
				files = append(files, f)
			}
			sent := make(chan error, 1)
			go func() {
				sent <- from.send(kindObject, objectDoc{Kind: fmt.Sprint(size)}, [][]byte{make([]byte, size/2), make([]byte, size-size/2)}, files...)
			}()
			m, err := to.receive()
			rig.Must(t, errors.Join(err, <-sent))
			if len(m.files) != n || len(m.data) != size {
				t.Fatalf("%d descriptors and %d octets, want %d and %d", len(m.files), len(m.data), n, size)
			}
			for i, f := range m.files {
				b := make([]byte, 16)
				k, _ := f.ReadAt(b, 0)
				flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
				if string(b[:k]) != fmt.Sprint(size) || err != nil || flags&unix.FD_CLOEXEC == 0 {
					t.Fatalf("descriptor %d is a file with %q, flags %d, %v", i, b[:k], flags, err)
				}
				files[i].Close()
			}
			m.close()
		}
	}
	var many []*os.File
	for range maxFiles + 1 {
		many = append(many, os.Stdin)
	}
	if err := from.send(kindObject, nil, nil, many...); err == nil {
		t.Error("more descriptors than the kernel passes were sent")
	}
}

// TestSuccessorGoesOnAlone: an old process that ends without abort has died. After complete the
// new one goes on alone, and before it gives up.
func TestSuccessorGoesOnAlone(t *testing.T) {
	for _, complete := range []bool{false, true} {
		old, fresh := ends(t)
		l := &link{conn: old}
		rig.Must(t, l.send(kindHello, good(), nil))
		s, err := Begin(context.Background(), fresh)
		rig.Must(t, err)
		s.ImportULP = func(*Flow) (stream.ULP, error) { return nil, portable.ErrKind }
		died := make(chan error, 1)
		go func() {
			m, err := l.expect(kindReady, nil)
			if err == nil {
				m.close()
			}
			if err == nil && complete {
				err = l.send(kindComplete, completeDoc{}, nil)
			}
			died <- errors.Join(err, old.Close())
		}()
		if err = s.Ready(); err == nil {
			err = s.Commit()
		}
		rig.Must(t, <-died)
		if complete != (err == nil) || !complete && !errors.Is(err, errGone) {
			t.Errorf("complete %v: %v", complete, err)
		}
	}
}

// TestSuccessorObeysAbort: until the new process has taken the connections, the old one can keep
// them, also after commit was not sent.
func TestSuccessorObeysAbort(t *testing.T) {
	for _, last := range []kind{kindComplete, kindReleased} {
		old, fresh := ends(t)
		l := &link{conn: old}
		rig.Must(t, l.send(kindHello, good(), nil))
		s, err := Begin(context.Background(), fresh)
		rig.Must(t, err)
		rig.Must(t, l.send(kindComplete, completeDoc{}, nil))
		if last == kindReleased {
			rig.Must(t, l.send(kindReleased, nil, nil))
		}
		rig.Must(t, l.send(kindAbort, reason{"late"}, nil))
		if err = s.Ready(); err == nil {
			err = s.Commit()
		}
		if !errors.Is(err, ErrAborted) || !strings.Contains(err.Error(), "late") {
			t.Errorf("abort after %v: %v", last, err)
		}
	}
}

// TestAnotherClock: ages count from the time of the other process's clock.
func TestAnotherClock(t *testing.T) {
	now, err := monotonic()
	rig.Must(t, err)
	then, err := instantOf(now - int64(time.Second))
	rig.Must(t, err)
	later, err := instantOf(now)
	rig.Must(t, err)
	if d := later.Sub(then); d < time.Second-time.Millisecond || d > time.Second+rig.Patience {
		t.Errorf("a second is %v", d)
	}
	for _, bad := range []int64{0, -1, now + int64(time.Hour)} {
		if _, err := instantOf(bad); err == nil {
			t.Errorf("%d was believed", bad)
		}
	}
}

// FuzzReceive: no octets of another process make a message panic, or are taken for a flow that
// they are not.
func FuzzReceive(f *testing.F) {
	f.Add(byte(kindFlow), []byte(`{"Mono":1,"State":2}`), []byte("abc"))
	f.Add(byte(kindObject), []byte(`{"Kind":"x","Mono":1}`), []byte{})
	f.Add(byte(kindHello), []byte(`[]`), []byte{})
	f.Fuzz(func(t *testing.T, k byte, doc, data []byte) {
		m := &message{kind: kind(k), doc: doc, data: data}
		if flow, err := decodeFlow(m); err == nil {
			if flow.Parted.Linger == nil && flow.Object == nil {
				t.Error("a flow with neither an upper layer nor TIME-WAIT")
			}
			flow.close()
		}
		if o, _, err := decodeObject(m); err == nil && o.Check() != nil {
			t.Error("an object that exceeds its limits")
		}
	})
}
