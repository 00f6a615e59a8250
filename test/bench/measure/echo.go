package measure

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// messageLen is the length of a pinger's message, in octets.
const messageLen = 64

// pinger is a peer that always has a message in transit. It sends a message, waits
// until all of the message has come back, and repeats this. The longest wait is how
// long a take-over stalled the peer.
type pinger struct {
	conn    *net.TCPConn
	rounds  atomic.Int64
	longest atomic.Int64 // longest wait, nanoseconds
	done    chan error
}

func startPinger(c *net.TCPConn) *pinger {
	p := &pinger{conn: c, done: make(chan error, 1)}
	go func() { p.done <- p.run() }()
	return p
}

func (p *pinger) run() error {
	buf := make([]byte, messageLen)
	for {
		start := time.Now()
		if _, err := p.conn.Write(buf); err != nil {
			return fmt.Errorf("peer: %w", err)
		}
		if _, err := io.ReadFull(p.conn, buf); err != nil {
			return fmt.Errorf("peer: %w", err)
		}
		p.longest.Store(max(p.longest.Load(), int64(time.Since(start))))
		p.rounds.Add(1)
	}
}

// pingPatience is the longest time that await waits.
const pingPatience = 10 * time.Second

// await waits until n more messages have come back.
func (p *pinger) await(n int64) error {
	want := p.rounds.Load() + n
	for end := time.Now().Add(pingPatience); p.rounds.Load() < want; time.Sleep(100 * time.Microsecond) {
		select {
		case err := <-p.done:
			p.done <- err
			return err
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("peer: no answer for %v", pingPatience)
		}
	}
	return nil
}

func (p *pinger) stop() {
	p.conn.Close()
	<-p.done
}

// ponger is the local side before its take-over: it sends back the octets that it
// reads.
type ponger struct {
	conn *net.TCPConn
	done chan error
}

func startPonger(c *net.TCPConn) *ponger {
	p := &ponger{conn: c, done: make(chan error, 1)}
	go func() { p.done <- p.run() }()
	return p
}

func (p *ponger) run() error {
	buf := make([]byte, messageLen)
	for {
		n, err := p.conn.Read(buf)
		if err != nil {
			return err
		}
		if _, err := p.conn.Write(buf[:n]); err != nil {
			return err
		}
	}
}

// interrupt ends the ponger between two messages.
func (p *ponger) interrupt() error {
	p.conn.SetReadDeadline(time.Unix(1, 0))
	if err := <-p.done; !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("our side, before the take-over: %w", err)
	}
	return p.conn.SetReadDeadline(time.Time{})
}
