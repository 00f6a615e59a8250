package rdma

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/tpt"
)

// serverProcess is a server that is replaced by its successors.
type serverProcess struct {
	*rig
	out   *bufio.Reader
	in    io.WriteCloser
	first bool // the process is the one that the test has started
	pid   int
	port  int
}

// startServer starts a server on the interface of side A.
func (r *rig) startServer(env ...string) *serverProcess {
	r.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, serverLink+"="+r.pair.Ends[pair.A].Name)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	r.Must(err)
	reader, writer, err := os.Pipe() // outlives the first process
	r.Must(err)
	cmd.Stdout = writer
	r.Must(r.pair.Do(pair.A, cmd.Start))
	r.Must(writer.Close())
	s := &serverProcess{rig: r, out: bufio.NewReader(reader), in: in, first: true}
	r.Cleanup(func() {
		if s.pid != 0 {
			_ = syscall.Kill(s.pid, syscall.SIGKILL) // an error means that it has ended
		}
		_ = cmd.Wait() // the exit code is that of a server that was replaced
		reader.Close()
	})
	s.ready()
	return s
}

// line returns the server's next line, which must begin with the words.
func (s *serverProcess) line(words string) string {
	s.Helper()
	line, err := s.out.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, words) {
		s.Fatalf("the server says %q (%v), want %q", line, err, words)
	}
	return strings.TrimSpace(line)
}

func (s *serverProcess) ready() {
	s.Helper()
	_, err := fmt.Sscanf(s.line("ready"), "ready %d %d", &s.pid, &s.port)
	s.Must(err)
}

func (s *serverProcess) do(what string, n syscall.Signal) {
	s.Helper()
	if s.first {
		_, err := fmt.Fprintln(s.in, what)
		s.Must(err)
		return
	}
	s.Must(syscall.Kill(s.pid, n))
}

// replace hands the server's connections over to a successor. It returns for how long they
// stood still.
func (s *serverProcess) replace(connections int) (frozen time.Duration) {
	s.Helper()
	was := s.pid
	s.do("replace", syscall.SIGUSR1)
	var said [2]string // the two processes say so in any order
	for i := range said {
		said[i] = s.line("re")
	}
	if strings.HasPrefix(said[0], "ready") {
		said[0], said[1] = said[1], said[0]
	}
	var pid, n, lost int
	var text string
	_, err := fmt.Sscanf(said[0], "replaced %d %d %d %s", &pid, &n, &lost, &text)
	s.Must(err)
	_, err = fmt.Sscanf(said[1], "ready %d %d", &s.pid, &s.port)
	s.Must(err)
	frozen, err = time.ParseDuration(text)
	s.Must(err)
	if s.first = false; pid != s.pid || pid == was || n != connections || lost != 0 {
		s.Fatalf("the server says %q and %q; it had %d connections", said[0], said[1], connections)
	}
	return frozen
}

// client talks to a server that knows it by its index.
type client struct {
	*end
	index  int
	server STag
	rounds atomic.Uint64
	stop   atomic.Bool
	done   chan error
}

// dials connects a client to the server.
func (s *serverProcess) dials() *client {
	s.Helper()
	c := &client{end: s.newEnd(s.b, wants{heap: slotAt(8, 0), qp: QPConfig{SendDepth: 64, RecvDepth: 2 * roundSlots}}), done: make(chan error, 1)}
	for i := range uint64(roundSlots) {
		s.Must(c.receive(i))
	}
	s.Must(c.qp.Dial(s.Context(), fmt.Sprintf("%v:%d", s.pair.Ends[pair.A].V4.Addr(), s.port), ConnParams{IRD: 8, ORD: 8}))
	private := c.qp.Conn().PrivateData
	c.server, c.index = STag(binary.BigEndian.Uint32(private)), int(binary.BigEndian.Uint32(private[4:]))
	go func() { c.done <- c.talk() }()
	return c
}

func (c *client) at(round uint64) int { return slotAt(c.index%8, round%roundSlots) }

func (c *client) receive(round uint64) error {
	_, err := c.qp.PostRecv(RecvWR{ID: round, SGL: []SGE{c.mr.SGE(slotAt(0, round%roundSlots)+atMessage, 8)}})
	return err
}

// talk plays rounds until stop, and then ends the connection in good order.
func (c *client) talk() error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	for round := range uint64(roundSlots) {
		if err := c.ask(round); err != nil {
			return err
		}
	}
	asked := uint64(roundSlots)
	for round := uint64(0); round < asked; round++ {
		if err := c.hear(ctx, round); err != nil {
			return fmt.Errorf("QP %d, round %d: %w", c.qp.Number(), round, err)
		}
		if c.rounds.Add(1); c.stop.Load() {
			continue
		}
		if err := c.ask(asked); err != nil {
			return err
		}
		asked++
	}
	return nil
}

// ask begins a round.
func (c *client) ask(round uint64) error {
	at := c.at(round)
	b := c.mr.Bytes()[at:]
	pattern(b[atRequest:atRequest+roundLen], 3, round)
	pattern(b[atRead:atRead+roundLen], 5, round)
	m := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, round), uint32(c.mr.RKey()))
	_, err := c.qp.PostSend(
		SendWR{ID: round, Op: WRWrite, SGL: []SGE{c.mr.SGE(at+atRequest, roundLen)}, RKey: c.server, RemoteAddr: uint64(at + atRequest)},
		SendWR{ID: round, Op: WRSend, Flags: Signaled, Inline: m})
	return err
}

// hear ends a round: the answer must be there, and the server's memory must be readable.
func (c *client) hear(ctx context.Context, round uint64) error {
	x, err := c.recv.Next(ctx)
	if err != nil || x.Status != Success || x.ID != round {
		return fmt.Errorf("completion %+v, %v", x, err)
	}
	at := c.at(round)
	b := c.mr.Bytes()
	var want [roundLen]byte
	pattern(want[:], 7, round)
	if got := binary.BigEndian.Uint64(b[slotAt(0, round%roundSlots)+atMessage:]); got != round || !bytes.Equal(b[at+atAnswer:at+atAnswer+roundLen], want[:]) {
		return fmt.Errorf("the answer is that to round %d, or other octets were written", got)
	}
	if err := c.receive(round + roundSlots); err != nil {
		return err
	}
	const scratch = atMessage + 512
	if _, err := c.qp.PostSend(SendWR{ID: round, Op: WRRead, Flags: Signaled, SGL: []SGE{c.mr.SGE(at+scratch, roundLen)}, RKey: c.server, RemoteAddr: uint64(at + atAnswer)}); err != nil {
		return err
	}
	for x.Op != WCRead {
		if x, err = c.send.Next(ctx); err != nil || x.Status != Success {
			return fmt.Errorf("completion %+v, %v", x, err)
		}
	}
	if x.ID != round || !bytes.Equal(b[at+scratch:at+scratch+roundLen], want[:]) {
		return fmt.Errorf("the Read %d has brought other octets", x.ID)
	}
	return nil
}

// flows waits until each client has played n more rounds.
func flows(r *rig, clients []*client, n uint64) {
	r.Helper()
	for _, c := range clients {
		goal := c.rounds.Load() + n
		r.Eventually("rounds are played", func() bool {
			select {
			case err := <-c.done:
				r.Fatalf("a client has ended: %v", err)
			default:
			}
			return c.rounds.Load() >= goal
		})
	}
}

// ends stops the clients, and checks that the server has done everything once.
func (s *serverProcess) ends(clients []*client) {
	s.Helper()
	var wg sync.WaitGroup
	for _, c := range clients {
		c.stop.Store(true)
		wg.Go(func() {
			s.Check(<-c.done)
			s.Check(c.qp.Disconnect(s.Context()))
		})
	}
	wg.Wait()
	s.do("end", syscall.SIGTERM)
	for _, c := range clients {
		var next, read, sent uint64
		_, err := fmt.Sscanf(s.line("rounds"), "rounds %d %d %d", &next, &read, &sent)
		s.Must(err)
		if n := c.rounds.Load(); next != n || read != n || sent != n {
			s.Errorf("the server has done %d, %d and %d of %d rounds", next, read, sent, n)
		}
	}
	s.line("closed")
}

// newServed returns a rig whose side B is an adapter over the kernel's TCP.
func newServed(t *testing.T) *rig {
	r := newStage(t, pair.Config{})
	r.Must(r.pair.Do(pair.B, func() error {
		r.b = r.open(Config{KernelPort: true, NoControl: true})
		return nil
	}))
	return r
}

// TestHandedOver replaces a server again and again, while its clients Write, Send and Read,
// and the server Writes, Sends and Reads. The clients know nothing of it: no connection is
// reset, each octet is right, and each work request of either side completes once. New
// clients reach the listening socket of each process.
func TestHandedOver(t *testing.T) {
	for name, c := range map[string]struct {
		progress Progress
		loaded   bool // on an interface that `stag load` has loaded: the table of regions is pinned
	}{"engine": {ProgressEngine, false}, "inline": {ProgressInline, false}, "loaded": {ProgressInline, true}} {
		t.Run(name, func(t *testing.T) {
			r := newServed(t)
			table := func() int { return 1 }
			if c.loaded {
				table = r.loads()
			}
			s := r.startServer(fmt.Sprintf("%s=%d", serverEngine, c.progress))
			var clients []*client
			for range 3 {
				clients = append(clients, s.dials())
			}
			flows(r, clients, 20)
			var longest time.Duration
			for range 8 {
				longest = max(longest, s.replace(len(clients)))
				if len(clients) < 6 {
					clients = append(clients, s.dials())
				}
				if flows(r, clients, 20); table() != 1 {
					t.Errorf("%d regions in the pinned table", table())
				}
			}
			s.ends(clients)
			t.Logf("the connections stood still for %v at most", longest)
		})
	}
}

// loads loads the pinned program on the interface of side A. regions counts the valid entries
// of the pinned table, as another process sees them.
func (r *rig) loads() (regions func() int) {
	r.Helper()
	name := r.pair.Ends[pair.A].Name
	o := loader.Options{Link: name, Pin: filepath.Join(loader.Root, name)}
	r.Must(r.pair.Do(pair.A, func() error {
		s, err := loader.Load(o)
		if err == nil {
			err = s.Close()
		}
		return err
	}))
	r.Cleanup(func() {
		_, err := loader.Unload(loader.UnloadOptions{Instance: o.Pin, Force: true})
		r.Check(err)
	})
	return func() (n int) {
		r.Must(r.pair.Do(pair.A, func() error {
			i, err := loader.ReadInstance(o.Pin)
			if err != nil || i.Table == nil {
				return fmt.Errorf("%+v: %w", i, err)
			}
			return i.Table.Read(func(memory []byte) error {
				v, err := tpt.NewView(memory)
				if err != nil {
					return err
				}
				for index := range v.Len() {
					if info, ok := v.Entry(index); ok && info.Valid {
						n++
					}
				}
				return nil
			})
		}))
		return n
	}
}
