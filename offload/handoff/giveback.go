package handoff

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/tcp"
)

// Reasons for which a connection cannot go back to the kernel. The placeholder is in
// place in all these cases, so that an engine can continue the connection.
var (
	ErrBothClosed = errors.New("both directions of the connection are closed: let it end where it is")
	ErrECN        = errors.New("the connection uses ECN, which TCP_REPAIR cannot set: set net.ipv4.tcp_ecn to 0 before connect or listen")
	ErrFINLost    = errors.New("the FIN or ACK that stands for the peer's did not reach the socket: allow raw sockets, and let packets of the connection through the firewall on lo")
)

// ErrNoPlaceholder says that a hand-back has failed, and that no placeholder could be
// made again. An engine can continue the connection. A segment that then passes the
// steering makes the kernel reset the peer.
var ErrNoPlaceholder = errors.New("no socket holds the addresses of the connection any more")

// GiveStep names the parts of a hand-back, in their order.
type GiveStep int

// The steps of a hand-back. A hand-back can fail in each of them. The segments of the
// connection reach the kernel at the end of GiveSteer.
const (
	GiveCheck GiveStep = iota
	GiveConnect
	GiveFill
	GiveClose
	GiveOpen
	GiveSteer
)

var giveNames = [...]string{
	GiveCheck:   "check the state",
	GiveConnect: "connect the socket",
	GiveFill:    "fill its queues",
	GiveClose:   "close its directions",
	GiveOpen:    "leave repair mode",
	GiveSteer:   "let its segments through",
}

func (s GiveStep) String() string { return giveNames[s] }

// giveback is one hand-back in progress.
type giveback struct {
	s     *Socket // the placeholder's descriptor and addresses
	st    *tcp.State
	plan  plan
	conn  net.Conn // the program's end; nil before it is made
	at    GiveStep
	fail  func(GiveStep) error
	saved saved // the program's settings
}

// GiveBack makes the kernel continue a connection that no engine runs. st is the state
// of the connection. The kernel's socket has the octets of st.Unread and st.Queue, and
// it sends again what is lost.
//
// GiveBack calls steer once, when the socket is complete. steer must make the segments of
// the connection reach the kernel. Until then no segment may reach the kernel. If steer
// returns an error, it must have changed nothing.
//
// On success the Placeholder is used up, and the caller owns the returned connection. Its
// socket options are those from before the take-over. On error the placeholder is as
// before, unless the error is ErrNoPlaceholder. The caller must install the state in an
// engine again.
//
// The phases ESTABLISHED, CLOSE-WAIT, FIN-WAIT-1 and FIN-WAIT-2 can go back. CLOSE-WAIT
// and FIN-WAIT-2 need CAP_NET_RAW, because only a segment of the peer brings a socket
// there. A segment with the peer's addresses is then sent within this host.
func (p *Placeholder) GiveBack(st *tcp.State, steer func() error) (*net.TCPConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd < 0 {
		return nil, ErrClosed
	}
	s := &Socket{fd: p.fd, tuple: p.tuple, local: p.local, remote: p.remote, mss: p.mss}
	g := &giveback{s: s, st: st, saved: p.saved, fail: p.fail}
	conn, err := g.run(steer)
	if err == nil {
		p.fd = -1
		unix.Close(s.fd) // conn has a descriptor of its own
		return conn, nil
	}
	err = fmt.Errorf("give %v to %v back to the kernel: %v: %w", p.tuple.Local, p.tuple.Remote, g.at, err)
	if g.at == GiveCheck {
		return nil, err
	}
	drops, again := g.undo()
	if again != nil {
		return nil, fmt.Errorf("%w; %w: %w", err, ErrNoPlaceholder, again)
	}
	p.drops = drops
	return nil, err
}

// Inject makes GiveBack call fail at the end of each step. If fail returns an error, the
// step fails. Tests use Inject to check the clean-up.
func (p *Placeholder) Inject(fail func(GiveStep) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = fail
}

// run does all steps. Nothing after steer can fail.
func (g *giveback) run(steer func() error) (*net.TCPConn, error) {
	for step, do := range [...]func() error{
		GiveCheck: g.check, GiveConnect: g.connect, GiveFill: g.fill, GiveClose: g.close, GiveOpen: g.open, GiveSteer: steer,
	} {
		g.at = GiveStep(step)
		if g.at == GiveSteer { // comes before steer, whose effects cannot be undone
			if err := g.inject(); err != nil {
				return nil, err
			}
		}
		if err := do(); err != nil {
			return nil, err
		}
		if g.at == GiveSteer {
			break
		}
		if err := g.inject(); err != nil {
			return nil, err
		}
	}
	g.start()
	return g.conn.(*net.TCPConn), nil
}

func (g *giveback) inject() error {
	if g.fail == nil {
		return nil
	}
	return g.fail(g.at)
}

// check refuses what the kernel cannot continue. check changes nothing.
func (g *giveback) check() (err error) {
	if err := g.st.Check(); err != nil {
		return err
	}
	if g.st.ECN {
		return ErrECN
	}
	if g.plan, err = newPlan(g.st); err != nil {
		return err
	}
	return g.repair(unix.TCP_REPAIR_ON) // it is on; setting it needs the right
}

// repair sets TCP_REPAIR.
func (g *giveback) repair(mode int) error {
	err := unix.SetsockoptInt(g.s.fd, unix.SOL_TCP, unix.TCP_REPAIR, mode)
	if errors.Is(err, unix.EPERM) {
		return ErrPermission
	}
	return os.NewSyscallError("setsockopt TCP_REPAIR", err)
}

// undo makes a placeholder of the socket again. undo returns how many segments the socket
// has dropped. The options that undo sets first would give the placeholder a keepalive
// timer.
func (g *giveback) undo() (drops uint32, err error) {
	if g.conn != nil {
		g.conn.Close() // the placeholder's own descriptor is open, so that the socket stays
	}
	if err := g.repair(unix.TCP_REPAIR_ON); err != nil {
		return 0, errors.Join(err, refuseAll(g.s.fd)) // without repair mode, disconnect would reset the peer
	}
	if err := g.s.stopTimers(); err != nil {
		return 0, err
	}
	if err := g.s.rebuild(g.s.fd, *g.st); err != nil {
		return 0, err
	}
	return g.s.verify(g.s.fd, *g.st)
}

// open makes the program's end, gives the socket the peer's window and leaves repair
// mode. The segments do not reach the socket yet. Only the retransmission timer can make
// the socket send, and that takes longer than the rest.
func (g *giveback) open() error {
	if err := g.makeConn(); err != nil {
		return err
	}
	if err := detachFilter(g.s.fd); err != nil {
		return err
	}
	if err := g.setWindow(g.st.SndWnd, g.st.RcvNxt); err != nil {
		return err
	}
	if err := g.selectQueue(noQueue); err != nil {
		return err
	}
	return g.repair(unix.TCP_REPAIR_OFF_NO_WP)
}

// makeConn makes the program's end. net.FileConn changes socket options, so that makeConn
// restores them. TCP_NODELAY is on until start.
func (g *giveback) makeConn() error {
	var before [len(quietOptions)]int
	for i, name := range quietOptions {
		v, err := unix.GetsockoptInt(g.s.fd, unix.SOL_TCP, name)
		if err != nil {
			return fmt.Errorf("read TCP option %d: %w", name, err)
		}
		before[i] = v
	}
	fd, err := unix.FcntlInt(uintptr(g.s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate the socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	if g.conn, err = net.FileConn(f); err != nil {
		return err
	}
	for i, name := range quietOptions {
		if err := unix.SetsockoptInt(g.s.fd, unix.SOL_TCP, name, before[i]); err != nil {
			return fmt.Errorf("restore TCP option %d: %w", name, err)
		}
	}
	g.s.saved = g.saved
	return g.s.restore()
}

// quietOptions are the options that net.FileConn changes.
var quietOptions = [...]int{unix.TCP_NODELAY, unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT}

// start makes the socket send what it may send. In ESTABLISHED the end of repair mode
// sends a window probe, and the peer answers with its ACK and its window. Setting
// TCP_NODELAY sends unsent octets and a FIN. start ignores errors, because the
// retransmission timer or the persist timer does the same later.
func (g *giveback) start() {
	fd := g.s.fd
	_ = g.repair(unix.TCP_REPAIR_OFF)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, g.saved.reuse) // repair mode has cleared it
	if v, err := unix.GetsockoptInt(fd, unix.SOL_TCP, unix.TCP_NODELAY); err == nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_NODELAY, 1)
		_ = unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_NODELAY, v)
	}
}
