package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/rdma/rendezvous"
)

// Config is the configuration of a daemon. Adapter and Listener must be set. A zero in
// another field means its default.
type Config struct {
	Adapter  *rdma.Adapter     // the adapter that clients use; the daemon does not close it
	Listener *net.UnixListener // socket of type SOCK_SEQPACKET; Close closes it
	Quota    Quota             // of each client

	Clients        int // clients at a time; 0 means 1024
	ClientsPerUser int // clients of one user at a time; 0 means 256

	// RequestTimeout is how long a client may take to answer a peer's request for a
	// connection. 0 means 60 s.
	RequestTimeout time.Duration
	// HelloTimeout is how long a connection may take to send its first message. 0 means 5 s.
	HelloTimeout time.Duration
	// FlushDelay is how long receives stay posted after the peer of a connection has
	// disconnected, if the client does not disconnect itself meanwhile. 0 means 1 s.
	FlushDelay time.Duration

	// Order is how long an attempt to connect waits for the one before it of the same client,
	// and a peer's request for those of peers that connected before. 0 means 20 ms.
	Order time.Duration

	Rendezvous rendezvous.Config // of QPs that are connected by number

	Version string       // of the program, for clients that ask
	Log     *slog.Logger // nil: nothing is logged
}

func (c Config) fill() (Config, error) {
	if c.Adapter == nil || c.Listener == nil {
		return c, errors.New("an Adapter and a Listener must be set")
	}
	c.Quota = c.Quota.fill()
	preset := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	preset(&c.Clients, 1024)
	preset(&c.ClientsPerUser, 256)
	if c.RequestTimeout == 0 {
		c.RequestTimeout = time.Minute
	}
	if c.HelloTimeout == 0 {
		c.HelloTimeout = 5 * time.Second
	}
	if c.FlushDelay == 0 {
		c.FlushDelay = time.Second
	}
	if c.Order == 0 {
		c.Order = 20 * time.Millisecond
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Daemon serves clients.
type Daemon struct {
	cfg        Config
	adapter    *rdma.Adapter
	log        *slog.Logger
	generation uint32
	limits     rdma.Limits
	handles    atomic.Uint64
	numbers    atomic.Uint32
	served     atomic.Uint64
	bound      boundPorts
	meeting    meeting
	complain   complaints
	running    sync.WaitGroup
	stop       chan struct{}

	owners owners // whose QP, CQ or SRQ an event of the adapter concerns

	mu       sync.Mutex // guards the fields below
	closed   bool
	clients  map[[2]uint64]*client    // by token
	perUser  map[uint32]int           // clients
	greeting map[*net.UnixConn]uint32 // connections without a first message, and their users
}

// New makes a daemon. Serve begins to accept clients.
func New(cfg Config) (*Daemon, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	at, err := cfg.Adapter.Attributes()
	if err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	d := &Daemon{
		limits: at.Limits, cfg: cfg, adapter: cfg.Adapter, log: cfg.Log, generation: uint32(time.Now().Unix()), stop: make(chan struct{}),
		clients: map[[2]uint64]*client{}, perUser: map[uint32]int{}, greeting: map[*net.UnixConn]uint32{},
	}
	d.report()
	d.running.Go(d.dispatch)
	return d, nil
}

// Served returns how many clients the daemon has had.
func (d *Daemon) Served() uint64 { return d.served.Load() }

// Clients returns how many clients use the daemon now.
func (d *Daemon) Clients() int { return len(d.all()) }

// handle returns a new handle. Handles are never reused in the life of a daemon.
func (d *Daemon) handle() uint64 { return d.handles.Add(1) }

// Serve accepts clients until Close, or until the listener fails.
func (d *Daemon) Serve() error {
	for {
		conn, err := d.cfg.Listener.AcceptUnix()
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ECONNABORTED):
			d.log.Error("cannot accept a client", "err", err)
			time.Sleep(50 * time.Millisecond)
			continue
		default:
			return fmt.Errorf("accept a client: %w", err)
		}
		if !d.receive(conn) {
			conn.Close()
		}
	}
}

// mostGreeting is how many connections of one user may have sent nothing yet.
const mostGreeting = 64

// receive begins with a connection. It reports false if the daemon does not want it.
func (d *Daemon) receive(conn *net.UnixConn) bool {
	p, err := peerOf(conn)
	if err != nil {
		d.log.Warn("connection refused", "err", err)
		return false
	}
	p.process.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	same := 0
	for _, uid := range d.greeting {
		if uid == p.uid {
			same++
		}
	}
	if same >= mostGreeting {
		d.complain.warn(d.log, "connection refused: too many connections of the user have sent nothing", "uid", p.uid)
		return false
	}
	d.greeting[conn] = p.uid
	d.running.Go(func() { d.greet(conn) })
	return true
}

// greet reads the first message of a connection, which says what the connection is for.
func (d *Daemon) greet(conn *net.UnixConn) {
	var m proto.Message
	conn.SetDeadline(time.Now().Add(d.cfg.HelloTimeout))
	fds, err := readMessage(conn, &m)
	conn.SetDeadline(time.Time{})
	d.mu.Lock()
	delete(d.greeting, conn)
	d.mu.Unlock()
	if err != nil {
		conn.Close()
		return
	}
	switch m.Op {
	case proto.OpHello:
		d.serveClient(conn, &m, fds)
	case proto.OpAsync, proto.OpEventChannel:
		closeAll(fds)
		d.serveStream(conn, &m)
	default:
		closeAll(fds)
		m.Err = int32(unix.EPROTO)
		writeMessage(conn, &m, nil)
		conn.Close()
	}
}

func (d *Daemon) serveClient(conn *net.UnixConn, m *proto.Message, fds []int) {
	c, err := d.hello(conn, m, fds)
	if err != nil {
		d.complain.warn(d.log, "client refused", "err", err)
		m.Err = int32(errnoOf(err))
		writeMessage(conn, m, nil)
		conn.Close()
		return
	}
	m.Err = 0
	err = writeMessage(conn, m, []int{c.page.fd, c.bell.Wake()})
	c.page.passed()
	if err != nil {
		c.end()
		return
	}
	c.log.Info("client")
	c.serve()
}

// serveStream makes a connection for events of the client that the message names.
func (d *Daemon) serveStream(conn *net.UnixConn, m *proto.Message) {
	d.mu.Lock()
	c := d.clients[m.Attach().Token]
	d.mu.Unlock()
	s, err := c.attach(conn, m)
	m.Err = int32(errnoOf(err))
	m.Attach().Token = [2]uint64{}
	if writeMessage(conn, m, nil) != nil || err != nil {
		if s != nil {
			c.detach(s, m.Handle)
		}
		conn.Close()
		return
	}
	go s.write()
	s.watch()
	c.detach(s, m.Handle)
}

// attach makes a stream of a connection.
func (c *client) attach(conn *net.UnixConn, m *proto.Message) (*stream, error) {
	if c == nil {
		return nil, unix.ENOENT
	}
	if err := c.account.take(ofStreams, 1); err != nil {
		c.refused(m.Op, err)
		return nil, err
	}
	s := newStream(c, conn, m.Op == proto.OpAsync)
	m.Handle = 0
	if s.async {
		c.mu.Lock()
		c.asyncs = append(c.asyncs, s)
		c.mu.Unlock()
		if c.life.Err() == nil {
			return s, nil
		}
		s.close()
		return nil, unix.ECONNRESET
	}
	m.Handle = c.daemon.handle()
	if err := c.objects.add(m.Handle, s); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// detach ends a stream.
func (c *client) detach(s *stream, handle uint64) {
	c.objects.remove(handle)
	c.mu.Lock()
	for i, x := range c.asyncs {
		if x == s {
			c.asyncs = append(c.asyncs[:i:i], c.asyncs[i+1:]...)
			break
		}
	}
	c.mu.Unlock()
	s.close()
}

// enter adds a client, if there is room for one more.
func (d *Daemon) enter(c *client) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return unix.ECONNREFUSED
	case len(d.clients) >= d.cfg.Clients:
		return fmt.Errorf("%d clients use the daemon: %w", len(d.clients), unix.EDQUOT)
	case d.perUser[c.peer.uid] >= d.cfg.ClientsPerUser:
		return fmt.Errorf("user %d has %d clients: %w", c.peer.uid, d.perUser[c.peer.uid], unix.EDQUOT)
	}
	d.served.Add(1)
	d.clients[c.token] = c
	d.perUser[c.peer.uid]++
	return nil
}

func (d *Daemon) leave(c *client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clients[c.token] != c {
		return
	}
	delete(d.clients, c.token)
	if d.perUser[c.peer.uid]--; d.perUser[c.peer.uid] == 0 {
		delete(d.perUser, c.peer.uid)
	}
}

func (d *Daemon) all() (clients []*client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.clients {
		clients = append(clients, c)
	}
	return clients
}

// Close ends all clients: their bell pages say that the daemon has gone, their connections
// are reset, and their sockets are closed. Close does not close the adapter.
func (d *Daemon) Close(ctx context.Context) error {
	d.mu.Lock()
	was := d.closed
	d.closed = true
	for conn := range d.greeting {
		conn.Close()
	}
	for _, c := range d.clients { // leave takes d.mu before the page goes
		setGone(c.page.memory)
		c.conn.Close()
	}
	d.mu.Unlock()
	if was {
		return nil
	}
	d.cfg.Listener.Close()
	close(d.stop)
	over := make(chan struct{})
	go func() {
		d.running.Wait()
		d.meeting.close()
		close(over)
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the daemon: clients are still being ended: %w", context.Cause(ctx))
	}
}
