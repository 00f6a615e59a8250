package daemon

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/order"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// client is one process that uses the daemon.
type client struct {
	daemon  *Daemon
	number  uint32
	conn    *net.UnixConn
	peer    peer
	program string
	style   proto.Personality
	since   time.Time
	log     *slog.Logger
	token   [2]uint64

	account *account
	objects objects
	bits    bitmap
	page    *shared // bell page
	bell    *rdma.Bell
	space   *rdma.ForeignSpace

	life  context.Context // ends when the client ends
	die   context.CancelFunc
	aside sync.WaitGroup // goroutines that connect, accept and disconnect
	dials order.Line     // attempts to connect whose MPA Request has not been sent
	ended chan struct{}

	complain complaints

	mu     sync.Mutex
	qps    map[uint32]*qp // by number
	asyncs []*stream
}

// reply is what an answer has besides its message.
type reply struct {
	fds   []int
	after func() // runs when the answer has been sent, or could not be sent
}

// handlers has a row for each request of the control connection after HELLO.
var handlers = map[proto.Op]func(*client, *proto.Message) (reply, error){
	proto.OpDevice: (*client).device, proto.OpPort: (*client).port, proto.OpGID: (*client).gid,
	proto.OpPD: (*client).makePD, proto.OpChannel: (*client).makeChannel,
	proto.OpCQ: (*client).makeCQ, proto.OpResizeCQ: (*client).resizeCQ,
	proto.OpQP: (*client).makeQP, proto.OpModifyQP: (*client).modifyQP, proto.OpQueryQP: (*client).queryQP,
	proto.OpMR: (*client).makeMR, proto.OpMW: (*client).makeMW,
	proto.OpSRQ: (*client).makeSRQ, proto.OpModifySRQ: (*client).modifySRQ, proto.OpQuerySRQ: (*client).querySRQ,
	proto.OpDestroy: (*client).destroy,
	proto.OpID:      (*client).makeID, proto.OpBind: (*client).bindID, proto.OpResolve: (*client).resolve, proto.OpRoute: (*client).route,
	proto.OpListen: (*client).listen, proto.OpConnect: (*client).connect, proto.OpAccept: (*client).accept, proto.OpReject: (*client).reject,
	proto.OpDisconnect: (*client).disconnect, proto.OpEstablish: (*client).establish, proto.OpMigrate: (*client).migrate,
	proto.OpSetOption: (*client).setOption, proto.OpGetOption: (*client).getOption,
}

// features are what this daemon can do.
const features = proto.FeatureAtomics | proto.FeatureImmediate | proto.FeatureSRQ | proto.FeatureMW | proto.FeatureResizeCQ | proto.FeatureByQPN | proto.FeatureCopied | proto.FeatureMapped | proto.FeatureHold

// hello makes a client of a connection whose first message is m.
func (d *Daemon) hello(conn *net.UnixConn, m *proto.Message, fds []int) (*client, error) {
	h := m.Hello()
	if h.Version != proto.Version || h.Layout != proto.LayoutVersion || int(h.MessageLen) != proto.MessageLen {
		closeAll(fds)
		err := fmt.Errorf("the client has protocol %d, layout %d and messages of %d octets; the daemon has %d, %d and %d: %w",
			h.Version, h.Layout, h.MessageLen, proto.Version, proto.LayoutVersion, proto.MessageLen, unix.EPROTONOSUPPORT)
		h.Version, h.Layout, h.MessageLen = proto.Version, proto.LayoutVersion, uint32(proto.MessageLen)
		return nil, err
	}
	if h.Personality > proto.PersonalityRoCE {
		closeAll(fds)
		return nil, fmt.Errorf("personality %d: %w", h.Personality, unix.EINVAL)
	}
	p, err := peerOf(conn)
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	space, err := spaceOf(fds, p)
	if err != nil {
		p.process.Close()
		return nil, err
	}
	c := newClient(d, conn, p, space, h.Personality)
	if err := c.ring(); err != nil {
		c.release()
		return nil, err
	}
	if err := d.enter(c); err != nil {
		c.release()
		return nil, err
	}
	c.welcome(m)
	return c, nil
}

// spaceOf makes the client's memory reachable. It takes the descriptors of HELLO over.
func spaceOf(fds []int, p peer) (*rdma.ForeignSpace, error) {
	if len(fds) != 2 {
		closeAll(fds)
		return nil, fmt.Errorf("%d descriptors with HELLO: want those of /proc/self/mem and /proc/self/maps: %w", len(fds), unix.EINVAL)
	}
	for i, name := range []string{"mem", "maps"} {
		if err := isProcFile(fds[i], name); err != nil {
			closeAll(fds)
			return nil, err
		}
	}
	process, err := duplicate(p.process)
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	return rdma.OpenForeignSpace(rdma.ForeignClient{Mem: os.NewFile(uintptr(fds[0]), "mem"), Maps: os.NewFile(uintptr(fds[1]), "maps"), Process: process})
}

// duplicate returns another descriptor of the file.
func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var inner error
	err = raw.Control(func(old uintptr) { fd, inner = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, inner); err != nil {
		return nil, os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// isProcFile checks that a descriptor is one of /proc/PID/name. A read of any other file
// could wait for ever.
func isProcFile(fd int, name string) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err
	}
	if fs.Type != unix.PROC_SUPER_MAGIC || filepath.Base(path) != name {
		return fmt.Errorf("a descriptor of %s with HELLO: want /proc/self/%s: %w", path, name, unix.EINVAL)
	}
	return nil
}

func newClient(d *Daemon, conn *net.UnixConn, p peer, space *rdma.ForeignSpace, style proto.Personality) *client {
	c := &client{
		daemon: d, conn: conn, peer: p, program: programOf(p.pid), style: style, since: time.Now(), space: space,
		account: newAccount(d.cfg.Quota), objects: objects{all: map[uint64]object{}}, qps: map[uint32]*qp{}, ended: make(chan struct{}),
		dials: order.Line{Patience: d.cfg.Order, Most: dialsMost * d.cfg.Order},
	}
	c.life, c.die = context.WithCancel(context.Background())
	c.number = d.numbers.Add(1)
	c.log = d.log.With("client", c.number, "pid", p.pid, "uid", p.uid, "program", c.program)
	var octets [16]byte
	rand.Read(octets[:])
	c.token = [2]uint64{binary.NativeEndian.Uint64(octets[:]), binary.NativeEndian.Uint64(octets[8:])}
	return c
}

// programOf returns the name of a process, or "" if the process is in another PID namespace.
func programOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// ring makes the client's bell.
func (c *client) ring() (err error) {
	if c.page, err = newShared("bell", proto.BellLen); err != nil {
		return err
	}
	if c.bell, err = c.daemon.adapter.NewBell(c.page.memory, c.bits.ring); err != nil {
		return err
	}
	c.bits.limit = c.bell.Use
	c.bell.Use(0)
	setGeneration(c.page.memory, c.daemon.generation)
	return nil
}

// welcome fills the answer to HELLO.
func (c *client) welcome(m *proto.Message) {
	*m.Hello() = proto.Hello{
		Version: proto.Version, Layout: proto.LayoutVersion, MessageLen: uint32(proto.MessageLen), Personality: c.style,
		Features: features, Token: c.token, BellLen: proto.BellLen, BellBits: proto.BellBits,
		Generation: c.daemon.generation, Devices: 1, Ports: uint32(len(c.daemon.ports())), PID: uint32(max(c.peer.pid, 0)),
	}
}

// serve answers the client's requests until its connection or its process ends.
func (c *client) serve() {
	c.aside.Go(func() {
		c.peer.ended()
		c.conn.Close() // a child of the process can still have the connection
	})
	for {
		var m proto.Message
		fds, err := readMessage(c.conn, &m)
		if err != nil {
			c.log.Info("client gone", "reason", err)
			break
		}
		closeAll(fds) // no request after HELLO has any
		if err := c.answer(&m); err != nil {
			c.log.Info("client gone", "reason", err)
			break
		}
	}
	c.end()
}

// answer executes a request and answers it.
func (c *client) answer(m *proto.Message) error {
	r, err := reply{}, error(unix.EOPNOTSUPP)
	if handler := handlers[m.Op]; handler != nil {
		r, err = handler(c, m)
	}
	if m.Err = int32(errnoOf(err)); err != nil {
		c.refused(m.Op, err)
	}
	err = writeMessage(c.conn, m, r.fds)
	if r.after != nil {
		r.after()
	}
	return err
}

// refused logs why a request has failed. Quotas are of interest to the operator.
func (c *client) refused(op proto.Op, err error) {
	if errno := errnoOf(err); errno == unix.EDQUOT || errno == unix.ENOMEM {
		c.complain.warn(c.log, "request refused", "op", uint32(op), "err", err)
		return
	}
	c.log.Debug("request refused", "op", uint32(op), "err", err)
}

// destroy is OpDestroy.
func (c *client) destroy(m *proto.Message) (reply, error) {
	o := c.objects.find(m.Handle)
	want := m.Destroy().Kind
	if o == nil || want != 0 && want != o.kind() {
		return reply{}, fmt.Errorf("destroy: handle %d names no object of kind %d: %w", m.Handle, want, unix.EINVAL)
	}
	if q, ok := o.(*qp); ok {
		q.part(c.life)
	}
	if err := o.close(); err != nil {
		return reply{}, err
	}
	c.objects.remove(m.Handle)
	if e, ok := o.(interface{ events() uint32 }); ok {
		m.Destroy().Events = e.events()
	}
	return reply{}, nil
}

// endings is the order in which the objects of a client end: an object before those it uses.
var endings = []proto.Kind{
	proto.KindID, proto.KindQP, proto.KindSRQ, proto.KindCQ, proto.KindMW, proto.KindMR, proto.KindPD, proto.KindChannel, proto.KindEvents,
}

// end takes everything away that belongs to the client.
func (c *client) end() {
	c.die()
	c.conn.Close()
	c.peer.process.Close()
	all := c.objects.finish()
	for _, o := range all {
		if q, ok := o.(*qp); ok {
			q.qp.Fail() // all at once, so that the closes need not wait one after the other
		}
	}
	for _, kind := range endings {
		for _, o := range all {
			if o.kind() != kind {
				continue
			}
			if err := o.close(); err != nil {
				c.log.Error("an object of the client cannot be closed", "kind", uint32(kind), "err", err)
			}
		}
	}
	c.mu.Lock()
	asyncs := c.asyncs
	c.asyncs = nil
	c.mu.Unlock()
	for _, s := range asyncs {
		s.close()
	}
	c.aside.Wait()
	c.daemon.leave(c)
	c.release()
	close(c.ended)
}

// release gives the resources back that no handle names.
func (c *client) release() {
	c.die()
	c.peer.process.Close()
	if c.bell != nil {
		c.bell.Close()
	}
	if err := c.space.Close(); err != nil {
		c.log.Error("the client's memory cannot be left", "err", err)
	}
	c.page.free()
}

// run runs f aside, if the client may have one more such goroutine.
func (c *client) run(f func()) error {
	if err := c.account.take(ofInFlight, 1); err != nil {
		return err
	}
	c.aside.Go(func() {
		defer c.account.give(ofInFlight, 1)
		f()
	})
	return nil
}
