package rdma

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// The process that TestHandedOver replaces is this test binary with these variables.
const (
	serverLink   = "STAG_TEST_SERVER"          // name of its interface
	serverEngine = "STAG_TEST_SERVER_PROGRESS" // Config.Progress, 1 or 2
)

// A round of the conversation: the client writes a pattern to the server and sends the
// number of the round. The server checks the pattern, reads it from the client as well,
// writes its answer, and sends the number back.
const (
	roundLen   = 3000 // octets of a pattern
	roundSlots = 4    // rounds that are under way at a time
	roundMsg   = 16   // octets of a message: number, and STag of the client's region
)

// pattern fills b for a round.
func pattern(b []byte, salt byte, round uint64) []byte {
	for i := range b {
		b[i] = byte(i)*salt ^ byte(round) ^ byte(round>>8)
	}
	return b
}

// Places in a region of either side.
func slotAt(qp int, slot uint64) int { return (qp*roundSlots + int(slot)) * 4 * 4096 }

const (
	atRequest = 0        // server: the client's pattern
	atRead    = 4096     // server: the pattern as it was read; client: the source
	atAnswer  = 2 * 4096 // client: the server's pattern; server: the source
	atMessage = 3 * 4096 // messages
)

// conversation is what the server knows of a connection. Everything in it goes to its
// successor.
type conversation struct {
	QP     uint32
	Index  int    // of its place in the region
	Next   uint64 // round that the next message must have
	Read   uint64 // round of the next Read that must complete
	Sent   uint64 // round of the next answer that must complete
	Client uint32 // STag of the client's region
}

// server answers clients. Its state is that of one process.
type server struct {
	mu   sync.Mutex // held while a completion is processed; Stop holds it
	a    *Adapter
	cq   *CQ
	mr   *MR
	l    *Listener
	byQP map[uint32]*conversation
	qps  map[uint32]*QP

	State struct {
		CQ, MR, PD    uint32
		Conversations []*conversation
	}
}

// serve runs the process.
func serve(link string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s := &server{byQP: map[uint32]*conversation{}, qps: map[uint32]*QP{}}
	cfg := Config{Ports: []string{link}, RegionHeap: 64 << 20, NoControl: true}
	if os.Getenv(serverEngine) == "1" {
		cfg.Progress = ProgressEngine
	} else {
		cfg.Progress = ProgressInline
	}
	cfg.Upgrade = func(ctx context.Context, progress func(string)) (HandedOver, error) {
		return s.a.Restart(ctx, s.handOver(), progress)
	}
	c, err := Predecessor(ctx)
	if err != nil {
		return err
	}
	if c != nil {
		var e *Estate
		if s.a, e, err = Succeed(ctx, c, cfg, Inherit{}); err == nil {
			err = s.inherit(e)
		}
	} else if s.a, err = Open(cfg); err == nil {
		err = s.begin(ctx)
	}
	if err != nil {
		return err
	}
	go s.accept(ctx)
	failed := make(chan error, 1)
	go func() { failed <- s.run(ctx) }()
	fmt.Printf("ready %d %v\n", os.Getpid(), s.l.Addr().Port())
	lines := make(chan string)
	if c == nil {
		go func() {
			for in := bufio.NewScanner(os.Stdin); in.Scan(); {
				lines <- in.Text()
			}
			lines <- "end"
		}()
	} else {
		ask := make(chan os.Signal, 1)
		signal.Notify(ask, syscall.SIGUSR1, syscall.SIGTERM)
		go func() {
			for x := range ask {
				lines <- map[os.Signal]string{syscall.SIGUSR1: "replace", syscall.SIGTERM: "end"}[x]
			}
		}()
	}
	for {
		select {
		case err := <-failed:
			return err
		case line := <-lines:
			if line == "end" {
				return s.end()
			}
			h, err := cfg.Upgrade(ctx, func(string) {})
			if err != nil {
				fmt.Printf("stays %s\n", bytes.ReplaceAll([]byte(err.Error()), []byte("\n"), []byte("; ")))
				continue
			}
			fmt.Printf("replaced %d %d %d %v\n", h.PID, h.Connections, len(h.Lost), h.Frozen)
			return s.left()
		}
	}
}

// begin makes the objects of the first process.
func (s *server) begin(ctx context.Context) error {
	pd, err := s.a.AllocPD()
	if err != nil {
		return err
	}
	if s.cq, err = s.a.CreateCQ(4096); err != nil {
		return err
	}
	if s.mr, err = pd.AllocMR(slotAt(8, 0), LocalWrite|RemoteWrite|RemoteRead); err != nil {
		return err
	}
	s.State.CQ, s.State.MR, s.State.PD = s.cq.Number(), uint32(s.mr.LKey()), pd.Number()
	s.l, err = s.a.Listen(ctx, ":0", ListenConfig{})
	return err
}

// inherit continues with the objects of the process before.
func (s *server) inherit(e *Estate) error {
	if err := json.Unmarshal(e.Program.Data, &s.State); err != nil {
		return err
	}
	s.cq, s.mr = e.CQ(s.State.CQ), e.MR(STag(s.State.MR))
	if s.cq == nil || s.mr == nil || e.PD(s.State.PD) == nil || len(e.Lost) != 0 || len(e.Listeners()) != 1 {
		return fmt.Errorf("the estate is not complete: %+v", e)
	}
	s.l = e.Listeners()[0]
	for _, c := range s.State.Conversations {
		if s.qps[c.QP] = e.QP(c.QP); s.qps[c.QP] == nil {
			return fmt.Errorf("no QP %d", c.QP)
		}
		s.byQP[c.QP] = c
	}
	return nil
}

func (s *server) handOver() HandOver {
	return HandOver{
		Stop:   func(context.Context) error { s.mu.Lock(); return nil },
		Resume: s.mu.Unlock,
		Program: func() (b Bequest, err error) {
			b.Data, err = json.Marshal(&s.State)
			return b, err
		},
	}
}

// left checks that the objects of this process say that they are another process's now.
func (s *server) left() error {
	s.mu.Unlock()
	if n := s.cq.Poll(make([]Completion, 10)); n != 0 {
		return fmt.Errorf("%d completions were polled after the hand-over", n)
	}
	_, alloc := s.a.AllocPD()
	errs := []error{s.cq.Wait(context.Background()), alloc}
	for _, qp := range s.qps {
		_, post := qp.PostSend(SendWR{Op: WRSend})
		_, recv := qp.PostRecv(RecvWR{})
		errs = append(errs, post, recv, qp.Err())
	}
	for i, err := range errs {
		if !errors.Is(err, ErrHandedOver) {
			return fmt.Errorf("after the hand-over: call %d returned %v", i, err)
		}
	}
	return s.a.Close()
}

func (s *server) accept(ctx context.Context) {
	for {
		r, err := s.l.Accept(ctx)
		if err != nil {
			return
		}
		if err := s.welcome(ctx, r); err != nil {
			fmt.Printf("bad accept: %v\n", err)
		}
	}
}

// welcome connects a client. The QP is known before its first completion is processed.
func (s *server) welcome(ctx context.Context, r *ConnRequest) error {
	s.mu.Lock()
	index := len(s.State.Conversations)
	s.mu.Unlock()
	qp, err := s.mr.pd.CreateQP(QPConfig{SendCQ: s.cq, RecvCQ: s.cq, SendDepth: 64, RecvDepth: 2 * roundSlots})
	if err != nil {
		return err
	}
	c := &conversation{QP: qp.Number(), Index: index}
	s.mu.Lock()
	s.State.Conversations = append(s.State.Conversations, c)
	s.byQP[c.QP], s.qps[c.QP] = c, qp
	s.mu.Unlock()
	for i := range uint64(2 * roundSlots) {
		if err := s.receive(qp, c, i); err != nil {
			return err
		}
	}
	private := binary.BigEndian.AppendUint32(nil, uint32(s.mr.RKey()))
	return r.Accept(ctx, qp, ConnParams{IRD: 8, ORD: 8, PrivateData: binary.BigEndian.AppendUint32(private, uint32(index))})
}

func (s *server) receive(qp *QP, c *conversation, round uint64) error {
	at := slotAt(c.Index, round%roundSlots) + atMessage + int(round%(2*roundSlots))*roundMsg
	_, err := qp.PostRecv(RecvWR{ID: round, SGL: []SGE{s.mr.SGE(at, roundMsg)}})
	return err
}

// run processes completions.
func (s *server) run(ctx context.Context) error {
	for {
		err := s.cq.Wait(ctx)
		switch {
		case errors.Is(err, ErrHandedOver):
			select {} // the process ends
		case err != nil:
			return err
		}
		if err := s.some(); err != nil {
			return err
		}
	}
}

func (s *server) some() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list [16]Completion
	for _, x := range list[:s.cq.Poll(list[:])] {
		if x.Status == Flushed {
			continue
		}
		if err := s.completed(x); err != nil {
			return fmt.Errorf("QP %d, completion %+v: %w", x.QP, x, err)
		}
	}
	return nil
}

// completed does the next step of a round.
func (s *server) completed(x Completion) error {
	c, qp := s.byQP[x.QP], s.qps[x.QP]
	if c == nil || x.Status != Success {
		return errors.New("it failed, or is of no QP")
	}
	at := slotAt(c.Index, x.ID%roundSlots)
	octets := s.mr.Bytes()[at:]
	var want [roundLen]byte
	switch x.Op {
	case WCRecv:
		m := octets[atMessage+int(x.ID%(2*roundSlots))*roundMsg:]
		round := binary.BigEndian.Uint64(m)
		if x.ID != c.Next || round != c.Next {
			return fmt.Errorf("round %d, want %d", round, c.Next)
		}
		c.Next++
		c.Client = binary.BigEndian.Uint32(m[8:])
		if !bytes.Equal(octets[atRequest:atRequest+roundLen], pattern(want[:], 3, round)) {
			return errors.New("the Write has left other octets")
		}
		if err := s.receive(qp, c, round+2*roundSlots); err != nil {
			return err
		}
		_, err := qp.PostSend(SendWR{ID: round, Op: WRRead, Flags: Signaled, SGL: []SGE{s.mr.SGE(at+atRead, roundLen)}, RKey: STag(c.Client), RemoteAddr: uint64(at + atRead)})
		return err
	case WCRead:
		if x.ID != c.Read {
			return fmt.Errorf("a Read of round %d, want %d", x.ID, c.Read)
		}
		c.Read++
		if !bytes.Equal(octets[atRead:atRead+roundLen], pattern(want[:], 5, x.ID)) {
			return errors.New("the Read has brought other octets")
		}
		pattern(octets[atAnswer:atAnswer+roundLen], 7, x.ID)
		_, err := qp.PostSend(
			SendWR{ID: x.ID, Op: WRWrite, SGL: []SGE{s.mr.SGE(at+atAnswer, roundLen)}, RKey: STag(c.Client), RemoteAddr: uint64(at + atAnswer)},
			SendWR{ID: x.ID, Op: WRSend, Flags: Signaled, Inline: binary.BigEndian.AppendUint64(nil, x.ID)})
		return err
	case WCSend:
		if x.ID != c.Sent {
			return fmt.Errorf("a Send of round %d, want %d", x.ID, c.Sent)
		}
		c.Sent++
		return nil
	}
	return errors.New("what is it?")
}

// end waits until the clients have closed, and says how many rounds there were.
func (s *server) end() error {
	for _, c := range s.State.Conversations {
		qp := s.qps[c.QP]
		select {
		case <-qp.Done():
		case <-time.After(patience):
			return fmt.Errorf("QP %d does not end", c.QP)
		}
		if err := qp.Err(); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond) // the last completions
		s.mu.Lock()
		fmt.Printf("rounds %d %d %d\n", c.Next, c.Read, c.Sent)
		s.mu.Unlock()
		if err := qp.Close(); err != nil {
			return err
		}
	}
	if err := s.cq.Close(); err != nil {
		return err
	}
	err := s.a.Close()
	fmt.Println("closed")
	return err
}
