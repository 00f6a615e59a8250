package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/bell"
	"github.com/stag-rdma/stag/rdma/proto"
)

// DefaultDaemon is the socket of `stag daemon` if it has no other.
const DefaultDaemon = proto.DefaultSocket

// through is the connection of an adapter to a daemon (Config.Daemon). The adapter has a
// device of its own, which has no port: it holds the region heap and everything that needs no
// peer. The daemon has an object for each PD, CQ, QP, region and listener. Work requests and
// completions go by rings in shared memory.
type through struct {
	adapter *Adapter
	path    string
	token   [2]uint64
	bell    *bell.Ringer
	page    []byte
	wake    int    // eventfd of the bell
	ports   uint32 // ports of the daemon's device

	asking  sync.Mutex // one request at a time
	control *net.UnixConn

	events  *net.UnixConn // events of connections
	channel *os.File      // completion channel of all CQs
	handles struct{ events, channel uint64 }
	running sync.WaitGroup
	closing sync.Once

	gone atomic.Bool   // the daemon has ended, or closed the connection
	over chan struct{} // channel that is closed when the daemon has ended

	mu     sync.Mutex // guards the fields below
	cookie uint64     // newest cookie
	cqs    map[uint64]*CQ
	ids    map[uint64]*identifier
	qps    map[uint32]*QP
}

// openThrough makes an adapter whose objects are in a daemon.
func openThrough(cfg Config) (*Adapter, error) {
	if len(cfg.Ports) != 0 || cfg.KernelPort || cfg.Carrier != CarrierAsNamed || cfg.For != ForAnything || len(cfg.Groups) != 0 || cfg.MemoryGroup != "" || cfg.Upgrade != nil {
		return nil, errors.New("open adapter: Daemon, and Ports, KernelPort, Carrier, For, Groups, MemoryGroup or Upgrade: the daemon has the ports, so leave the others out")
	}
	local := cfg
	local.KernelPort, local.NoControl, local.Progress = true, true, ProgressEngine
	// With Upgrade the region heap is a file in memory, which the daemon can map.
	local.Upgrade = func(context.Context, func(string)) (HandedOver, error) { return HandedOver{}, ErrThroughDaemon }
	a, device := newAdapter(local)
	d, err := adapter.Open(device, layer{a})
	if err != nil {
		return nil, err
	}
	a.standOn(d)
	if err := a.join(cfg.Daemon); err != nil {
		return nil, fmt.Errorf("open adapter: daemon at %s: %w", cfg.Daemon, errors.Join(err, d.Close()))
	}
	return a, nil
}

// join connects the adapter to a daemon.
func (a *Adapter) join(path string) (err error) {
	t := &through{
		adapter: a, path: path, wake: -1, over: make(chan struct{}),
		cqs: map[uint64]*CQ{}, ids: map[uint64]*identifier{}, qps: map[uint32]*QP{},
	}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if t.control, err = dialDaemon(path); err != nil {
		return err
	}
	if err = t.hello(); err != nil {
		return err
	}
	if err = t.attach(); err != nil {
		return err
	}
	answer, err := t.ask(&proto.Message{Op: proto.OpChannel}, 1)
	if err != nil {
		return err
	}
	unix.SetNonblock(answer.fds[0], true) // for the poller of package os
	t.channel, t.handles.channel = os.NewFile(uintptr(answer.fds[0]), "completion channel"), answer.Handle
	a.through = t
	t.running.Go(t.readEvents)
	t.running.Go(t.readCompletions)
	return nil
}

func dialDaemon(path string) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
}

// hello introduces this process to the daemon.
func (t *through) hello() error {
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	m := &proto.Message{Op: proto.OpHello}
	*m.Hello() = proto.Hello{Version: proto.Version, Layout: proto.LayoutVersion, MessageLen: uint32(proto.MessageLen)}
	answer, err := t.ask(m, 2, int(mem.Fd()), int(maps.Fd()))
	if err != nil {
		return err
	}
	h := answer.Hello()
	t.token, t.wake, t.ports = h.Token, answer.fds[1], h.Ports
	if t.page, err = mapShared(answer.fds[0], uint64(h.BellLen)); err != nil {
		return err
	}
	t.bell, err = bell.NewRinger(t.page, t.wake)
	return err
}

// attach makes the connection for events.
func (t *through) attach() (err error) {
	if t.events, err = dialDaemon(t.path); err != nil {
		return err
	}
	m := &proto.Message{Op: proto.OpEventChannel}
	m.Attach().Token = t.token
	answer, err := exchange(t.events, m, 0)
	if err != nil {
		return err
	}
	t.handles.events = answer.Handle
	return nil
}

// close ends the connection. The daemon then removes everything that it has for this adapter.
func (t *through) close() (err error) {
	t.closing.Do(func() { err = t.end() })
	return err
}

func (t *through) end() (err error) {
	t.gone.Store(true)
	for _, c := range []*net.UnixConn{t.control, t.events} {
		if c != nil {
			c.Close()
		}
	}
	if t.channel != nil {
		t.channel.Close()
	}
	t.running.Wait()
	if t.page != nil {
		err = unix.Munmap(t.page)
	}
	if t.wake >= 0 {
		unix.Close(t.wake)
	}
	return err
}

// lost is called when the daemon has ended. Every connection has ended with it.
func (t *through) lost() {
	if t.gone.Swap(true) {
		return // Close
	}
	close(t.over)
	t.mu.Lock()
	var qps []*QP
	for _, qp := range t.qps {
		qps = append(qps, qp)
	}
	var listeners []*Listener
	for _, i := range t.ids {
		if i.listener != nil {
			listeners = append(listeners, i.listener)
		}
	}
	var cqs []*CQ
	for _, c := range t.cqs {
		cqs = append(cqs, c)
	}
	t.mu.Unlock()
	for _, l := range listeners {
		l.die(ErrDaemonGone)
	}
	for _, qp := range qps {
		qp.endDistant(ErrDaemonGone)
	}
	for _, c := range cqs {
		c.news()
	}
}

// readCompletions tells CQs that an event for them has come.
func (t *through) readCompletions() {
	var b [64 * 8]byte
	for {
		n, err := io.ReadAtLeast(t.channel, b[:], 8)
		if err != nil {
			t.lost()
			return
		}
		for at := 0; at+8 <= n; at += 8 { // the daemon writes whole events
			if c := t.cqOf(nativeOrder.Uint64(b[at:])); c != nil {
				c.news()
			}
		}
	}
}

func (t *through) cqOf(cookie uint64) *CQ {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cqs[cookie]
}

// next returns a cookie. The caller must hold t.mu.
func (t *through) next() uint64 {
	t.cookie++
	return t.cookie
}

// refuse returns ErrThroughDaemon, with the name of what the daemon cannot do, if the adapter
// is one through a daemon.
func (a *Adapter) refuse(what string) error {
	if a.through == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, ErrThroughDaemon)
}
