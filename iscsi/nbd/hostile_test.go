package nbd

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stag-rdma/stag/test/rig"
)

// client is a client that sends whatever the test wants.
type client struct {
	t testing.TB
	net.Conn
}

func connect(t testing.TB, socket string) *client {
	t.Helper()
	c, err := net.Dial("unix", socket)
	rig.Must(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return &client{t, c}
}

func (c *client) send(parts ...any) {
	c.t.Helper()
	var b bytes.Buffer
	for _, p := range parts {
		if s, ok := p.(string); ok {
			p = []byte(s)
		}
		rig.Must(c.t, binary.Write(&b, binary.BigEndian, p))
	}
	c.Write(b.Bytes()) // the server may have closed the connection
}

func (c *client) receive(n int) []byte {
	c.t.Helper()
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	rig.Must(c.t, err)
	return b
}

// ended demands that the server closes the connection.
func (c *client) ended() {
	c.t.Helper()
	if n, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
		c.t.Fatalf("the connection does not end: %d octets, %v", n, err)
	}
}

// hello takes the server's greeting.
func (c *client) hello(flags uint32) *client {
	c.t.Helper()
	if b := c.receive(18); binary.BigEndian.Uint64(b) != Magic || binary.BigEndian.Uint16(b[16:]) != FixedNewstyle|NoZeroes {
		c.t.Fatalf("greeting %x", b)
	}
	c.send(flags)
	return c
}

func (c *client) option(number uint32, data string) {
	c.t.Helper()
	c.send(uint64(OptionMagic), number, uint32(len(data)), data)
}

// answer returns the kind and the data of a reply to an option.
func (c *client) answer(number uint32) (kind uint32, data string) {
	c.t.Helper()
	h := c.receive(20)
	if binary.BigEndian.Uint64(h) != OptionReplyMagic || binary.BigEndian.Uint32(h[8:]) != number {
		c.t.Fatalf("reply %x to option %d", h, number)
	}
	return binary.BigEndian.Uint32(h[12:]), string(c.receive(int(binary.BigEndian.Uint32(h[16:]))))
}

// begun returns a client that has negotiated.
func begun(t testing.TB, socket string) *client {
	t.Helper()
	c := connect(t, socket).hello(FixedNewstyle | NoZeroes)
	c.option(OptExportName, "disk")
	c.receive(10)
	return c
}

func (c *client) request(kind, flags uint16, cookie, off uint64, n uint32) {
	c.t.Helper()
	c.send(Request{Flags: flags, Type: kind, Cookie: cookie, Offset: off, Length: n}.Append(nil))
}

// reply returns the error and the cookie of a reply.
func (c *client) reply() (syscall.Errno, uint64) {
	c.t.Helper()
	h := c.receive(ReplyLen)
	if binary.BigEndian.Uint32(h) != SimpleReplyMagic {
		c.t.Fatalf("reply %x", h)
	}
	return syscall.Errno(binary.BigEndian.Uint32(h[4:])), binary.BigEndian.Uint64(h[8:])
}

// info returns the data of OptInfo and OptGo.
func info(name string, kinds ...uint16) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(name)))
	b = binary.BigEndian.AppendUint16(append(b, name...), uint16(len(kinds)))
	for _, k := range kinds {
		b = binary.BigEndian.AppendUint16(b, k)
	}
	return string(b)
}

// TestOptions: each option has its reply, and a client may go on after a refusal.
func TestOptions(t *testing.T) {
	m := newMemory(1<<20, 512)
	_, socket := export(t, m, nil)
	big := newMemory(1<<20, 4096)
	_, other := export(t, big, nil)
	c, d := connect(t, socket).hello(FixedNewstyle), connect(t, other).hello(FixedNewstyle|NoZeroes)
	for _, x := range []struct {
		c      *client
		option uint32
		data   string
		kinds  []uint32
	}{
		{c, 8, "", []uint32{RepErrUnsupported}},
		{c, 0xffffffff, "x", []uint32{RepErrUnsupported}},
		{c, OptList, "x", []uint32{RepErrInvalid}},
		{c, OptList, "", []uint32{RepServer, RepAck}},
		{c, OptInfo, "", []uint32{RepErrInvalid}},
		{c, OptInfo, "\xff\xff\xff\xffabcdef", []uint32{RepErrInvalid}},
		{c, OptInfo, info("disk")[:9], []uint32{RepErrInvalid}},
		{c, OptGo, info("disk", 1, 2) + "x", []uint32{RepErrInvalid}},
		{c, OptInfo, info("disc"), []uint32{RepErrUnknown}},
		{c, OptGo, info(strings.Repeat("n", MaxName+1)), []uint32{RepErrInvalid}},
		{c, OptGo, strings.Repeat("n", longestOption+1), []uint32{RepErrTooBig}},
		{c, OptInfo, info("disk"), []uint32{RepInfo, RepAck}},
		{c, OptInfo, info("disk", 3, 0, 77), []uint32{RepInfo, RepInfo, RepAck}},
		{d, OptGo, info("disk"), []uint32{RepErrBlockSizeReq}},
		{d, OptGo, info("disk", 3), []uint32{RepInfo, RepInfo, RepAck}},
		{c, OptAbort, "", []uint32{RepAck}},
	} {
		x.c.option(x.option, x.data)
		for _, want := range x.kinds {
			if kind, data := x.c.answer(x.option); kind != want {
				t.Errorf("option %d %.20q: reply %#x %q, want %#x", x.option, x.data, kind, data, want)
			}
		}
	}
	c.ended()
	d.request(CmdFlush, 0, 9, 0, 0)
	if e, cookie := d.reply(); e != 0 || cookie != 9 {
		t.Errorf("flush: %v, cookie %d", e, cookie)
	}
}

// TestOldHandshake: a client that gives the export's name and wants the zeros gets them.
func TestOldHandshake(t *testing.T) {
	m := newMemory(1<<20, 512)
	_, socket := export(t, m, nil)
	c := connect(t, socket).hello(FixedNewstyle)
	c.option(OptExportName, "disk")
	if b := c.receive(134); binary.BigEndian.Uint64(b) != 1<<20 || !bytes.Equal(b[10:], make([]byte, 124)) {
		t.Errorf("%x", b)
	}
	c.request(CmdRead, 0, 1, 0, 512)
	c.reply()
	c.receive(512)
}

// TestHostileHandshakes: each of these ends its own connection only.
func TestHostileHandshakes(t *testing.T) {
	m := newMemory(1<<20, 512)
	_, socket := export(t, m, func(c *Config) { c.HandshakeTimeout = time.Second })
	for name, hostile := range map[string]func(c *client){
		"flags":     func(c *client) { c.hello(0x80) },
		"old style": func(c *client) { c.hello(0) },
		"magic":     func(c *client) { c.hello(FixedNewstyle).send(uint64(1), uint64(1)) },
		"name":      func(c *client) { c.hello(FixedNewstyle).option(OptExportName, "disc") },
		"long name": func(c *client) {
			c.hello(FixedNewstyle).send(uint64(OptionMagic), uint32(OptExportName), uint32(1<<31))
		},
		"silent":        func(c *client) {},
		"silent later":  func(c *client) { c.hello(FixedNewstyle).send(uint64(OptionMagic), uint32(OptGo), uint32(1<<31)) },
		"many options":  func(c *client) { c.hello(FixedNewstyle); hammer(c) },
		"no more octet": func(c *client) { c.Conn.(*net.UnixConn).CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, socket)
			c.t = t
			hostile(c)
			c.ended()
		})
	}
	t.Run("meanwhile", func(t *testing.T) {
		c := begun(t, socket)
		c.request(CmdFlush, 0, 1, 0, 0)
		c.reply()
	})
}

func hammer(c *client) {
	for range mostOptions + 1 {
		c.option(OptList, "")
	}
}

// TestHostileRequests: each request that is wrong has its error, and the connection goes on.
func TestHostileRequests(t *testing.T) {
	m := newMemory(1<<20, 512)
	protected := newMemory(1<<20, 512)
	protected.shape.ReadOnly = true
	_, socket := export(t, m, nil)
	_, other := export(t, protected, nil)
	c, d := begun(t, socket), begun(t, other)
	for i, x := range []struct {
		c           *client
		kind, flags uint16
		off         uint64
		n           uint32
		want        syscall.Errno
	}{
		{c, CmdRead, 0, 1 << 20, 512, syscall.EINVAL},
		{c, CmdRead, 0, 1<<64 - 512, 512, syscall.EINVAL},
		{c, CmdRead, 0, 0, MaxPayload + 512, syscall.EOVERFLOW},
		{c, CmdRead, 0, 0, 1<<32 - 1, syscall.EOVERFLOW},
		{c, CmdRead, 0, 0, 0, syscall.EINVAL},
		{c, CmdRead, 0, 1, 512, syscall.EINVAL},
		{c, CmdRead, 0x80, 0, 512, syscall.EINVAL},
		{c, CmdRead, FlagFUA, 0, 0, syscall.EINVAL},
		{c, CmdWrite, 0, 1 << 20, 512, syscall.ENOSPC},
		{c, CmdWrite, 0, 1<<64 - 512, 512, syscall.ENOSPC},
		{c, CmdWrite, 0, 0, 100, syscall.EINVAL},
		{c, CmdWrite, FlagNoHole, 0, 512, syscall.EINVAL},
		{c, CmdTrim, 0, 0, 1<<32 - 512, syscall.ENOSPC},
		{c, CmdWriteZeroes, FlagFUA | FlagNoHole, 1<<20 - 512, 1024, syscall.ENOSPC},
		{c, 5, 0, 0, 512, syscall.EINVAL},
		{c, 7, 0, 0, 512, syscall.EINVAL},
		{c, 0xffff, 0, 0, 512, syscall.EINVAL},
		{c, CmdFlush, 0, 0, 0, 0},
		{c, CmdTrim, FlagFUA, 0, 1 << 20, 0},
		{c, CmdWriteZeroes, FlagNoHole, 0, 1 << 20, 0},
		{d, CmdWrite, 0, 0, 512, syscall.EPERM},
		{d, CmdTrim, 0, 0, 512, syscall.EPERM},
		{d, CmdWriteZeroes, 0, 0, 512, syscall.EPERM},
	} {
		x.c.request(x.kind, x.flags, uint64(i), x.off, x.n)
		if x.kind == CmdWrite {
			x.c.send(make([]byte, x.n))
		}
		if e, cookie := x.c.reply(); e != x.want || cookie != uint64(i) {
			t.Errorf("request %d, %+v: %v, cookie %d", i, x, e, cookie)
		}
	}
	if log := protected.submitted(); len(log) != 0 {
		t.Errorf("a read-only volume got %+v", log)
	}
}

// TestHostileEnds: what ends a connection does not end the others, and leaves no queue.
func TestHostileEnds(t *testing.T) {
	m := newMemory(64<<20, 512)
	_, socket := export(t, m, nil)
	honest := begun(t, socket)
	for name, hostile := range map[string]func(c *client){
		"magic":      func(c *client) { c.send(make([]byte, RequestLen)) },
		"long write": func(c *client) { c.request(CmdWrite, 0, 1, 0, MaxPayload+512) },
		"cut header": func(c *client) { c.send(make([]byte, 5)); c.Conn.(*net.UnixConn).CloseWrite() },
		"cut data": func(c *client) {
			c.request(CmdWrite, 0, 1, 0, 1<<20)
			c.send(make([]byte, 1<<10))
			c.Conn.(*net.UnixConn).CloseWrite()
		},
		"disconnect": func(c *client) { c.request(CmdRead, 0, 1, 0, 512); c.request(CmdDisconnect, 0, 2, 0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			c := begun(t, socket)
			hostile(c)
			c.ended()
		})
	}
	deaf := begun(t, socket) // it asks for 8 GiB, and reads none of it
	for i := range 256 {
		deaf.SetDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := deaf.Write(Request{Type: CmdRead, Cookie: uint64(i), Length: MaxPayload}.Append(nil)); err != nil {
			break
		}
	}
	honest.request(CmdRead, 0, 7, 512, 512)
	if e, cookie := honest.reply(); e != 0 || cookie != 7 {
		t.Errorf("%v, cookie %d", e, cookie)
	}
	honest.receive(512)
	deaf.Close()
	rig.Eventually(t, "one queue is left", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.queues) == 1
	})
}

// TestClose: a server closes while the volume holds requests, while a client sends nothing,
// and while clients wait for a place.
func TestClose(t *testing.T) {
	m := newMemory(1<<20, 512)
	m.held = true
	s, socket := export(t, m, func(c *Config) { c.Connections, c.Depth = 2, 2 })
	a, b := begun(t, socket), begun(t, socket)
	for i := range 3 { // one more than the depth
		a.request(CmdRead, 0, uint64(i), 0, 512)
	}
	c := connect(t, socket) // one more than there may be
	rig.Eventually(t, "two requests are held", func() bool { return len(m.submitted()) == 2 })
	rig.Must(t, s.Close())
	a.ended()
	b.ended()
	c.ended()
	if _, err := net.Dial("unix", socket); err == nil {
		t.Error("the server still listens")
	}
}

// TestDepth: a connection has as many requests in progress as its depth, and their replies
// come in the order in which they end.
func TestDepth(t *testing.T) {
	m := newMemory(1<<20, 512)
	_, socket := export(t, m, func(c *Config) { c.Depth = 4 })
	c := begun(t, socket)
	const n = 1000
	go func() {
		for i := range n {
			c.request(CmdRead, 0, uint64(i), 0, 512)
		}
	}()
	seen := map[uint64]bool{}
	for range n {
		e, cookie := c.reply()
		if e != 0 || seen[cookie] {
			t.Fatalf("%v, cookie %d, seen %v", e, cookie, seen[cookie])
		}
		seen[cookie] = true
		c.receive(512)
	}
}

// TestAllocations: reads, writes and flushes allocate nothing.
func TestAllocations(t *testing.T) {
	m := newMemory(1<<20, 512)
	m.quiet = true
	_, socket := export(t, m, nil)
	c := begun(t, socket)
	requests := [][]byte{
		append(Request{Type: CmdWrite, Length: 4096}.Append(nil), make([]byte, 4096)...), Request{Type: CmdRead, Length: 4096}.Append(nil), Request{Type: CmdFlush}.Append(nil),
		Request{Type: CmdRead, Length: 1}.Append(nil),
	}
	replies := make([]byte, ReplyLen*len(requests)+4096)
	each := func() {
		for _, b := range requests {
			if _, err := c.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.ReadFull(c, replies); err != nil {
			t.Fatal(err)
		}
	}
	for range defaultDepth { // each slot gets its memory
		each()
	}
	if n := testing.AllocsPerRun(500, each); n >= 1 {
		t.Errorf("%v allocations for %d requests", n, len(requests))
	}
}

// TestConfig: a server refuses what it cannot be.
func TestConfig(t *testing.T) {
	for _, c := range []Config{{Connections: -1}, {Depth: -1}, {Memory: MaxPayload - 1}, {Name: strings.Repeat("n", MaxName+1)}} {
		c.Volume = newMemory(1<<20, 512)
		if _, err := Serve(nil, c); err == nil {
			t.Errorf("%+v", c)
		}
	}
}

// FuzzClient: whatever a client sends, the server ends the connection and leaves nothing.
func FuzzClient(f *testing.F) {
	greeting := "\x00\x00\x00\x03"
	f.Add([]byte(greeting + "IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x04disk"))
	f.Add(Request{Type: CmdRead, Length: 512}.Append([]byte(greeting + "IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x04disk")))
	f.Add([]byte(greeting + "IHAVEOPT\x00\x00\x00\x07\x00\x00\x00\x0a\x00\x00\x00\x04disk\x00\x00"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		m := newMemory(1<<16, 512)
		shape := m.Shape()
		ours, theirs := net.Pipe()
		end := make(chan error)
		go func() {
			h := handshake{conn: ours, name: "disk", shape: &shape}
			transmits, err := h.run()
			if transmits {
				err = transmit(t.Context(), ours, m, &shape, 4, defaultMemory)
			}
			ours.Close()
			end <- err
		}()
		go io.Copy(io.Discard, theirs)
		theirs.Write(sent) // the server may have closed the connection
		theirs.Close()
		<-end
		if len(m.queues) != 0 {
			t.Error("a queue is open")
		}
	})
}
