package rawpeer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"syscall"
	"time"
)

// Patience is how long a peer waits for expected octets.
const Patience = 20 * time.Second

// Peer is a connected socket. One goroutine at a time may use it.
type Peer struct {
	Conn *net.TCPConn

	// NoCRC says that the connection does not use CRCs. The CRC fields of FPDUs are
	// then ignored.
	NoCRC bool

	// Nudges counts the empty RDMA Writes that FPDU and End have skipped. An initiator
	// sends some of them to a silent peer. FPDU never skips the first FPDU of a
	// connection.
	Nudges int
	begun  bool // the first FPDU has arrived
}

// New returns a Peer over c. The kernel sends each write at once (TCP_NODELAY).
func New(c *net.TCPConn) (*Peer, error) {
	if err := c.SetNoDelay(true); err != nil {
		return nil, err
	}
	return &Peer{Conn: c}, c.SetDeadline(time.Now().Add(Patience))
}

// Octets writes b unchanged, in one piece.
func (p *Peer) Octets(b []byte) error {
	_, err := p.Conn.Write(b)
	return err
}

// Pieces writes b in pieces of n octets with a pause after each, so that the kernel
// usually sends each piece as a segment of its own.
func (p *Peer) Pieces(b []byte, n int, pause time.Duration) error {
	for len(b) > 0 {
		k := min(n, len(b))
		if err := p.Octets(b[:k]); err != nil {
			return err
		}
		b = b[k:]
		time.Sleep(pause)
	}
	return nil
}

// Frame reads exactly one Request or Reply.
func (p *Peer) Frame() (f Frame, err error) {
	var head [frameLen]byte
	if _, err := io.ReadFull(p.Conn, head[:]); err != nil {
		return f, fmt.Errorf("read an MPA frame: %w", err)
	}
	f = Frame{
		Key: string(head[:16]), Flags: head[16], Revision: head[17],
		Claim: int(binary.BigEndian.Uint16(head[18:])),
	}
	f.Private = make([]byte, f.Claim)
	if _, err := io.ReadFull(p.Conn, f.Private); err != nil {
		return f, fmt.Errorf("read an MPA frame's private data: %w", err)
	}
	return f, nil
}

// FPDU reads the next FPDU and returns its ULPDU. A wrong CRC, or padding that is not
// zero, is an error. The error io.EOF means that the peer has closed between two FPDUs.
func (p *Peer) FPDU() ([]byte, error) {
	for {
		ulpdu, err := p.any()
		if err != nil || !p.begun || !bytes.Equal(ulpdu, nudge) {
			p.begun = true
			return ulpdu, err
		}
		p.Nudges++
	}
}

// nudge is an RDMA Write of no octets to STag 0.
var nudge = Write(0, 0, nil)

// any reads the next FPDU, even if it is a nudge.
func (p *Peer) any() ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(p.Conn, head[:1]); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(p.Conn, head[1:]); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	covered := (2 + n + 3) &^ 3
	b := make([]byte, covered+4)
	copy(b, head[:])
	if _, err := io.ReadFull(p.Conn, b[2:]); err != nil {
		return nil, fmt.Errorf("within an FPDU of %d octets: %w", len(b), err)
	}
	for _, pad := range b[2+n : covered] {
		if pad != 0 {
			return nil, fmt.Errorf("padding is not zero: %x", b)
		}
	}
	if sum := crc32.Checksum(b[:covered], castagnoli); !p.NoCRC && sum != binary.LittleEndian.Uint32(b[covered:]) {
		return nil, fmt.Errorf("bad CRC in an FPDU of %d octets", len(b))
	}
	return b[2 : 2+n], nil
}

// Ended says how the other end's direction ended.
type Ended string

// These are the results of End.
const (
	FIN   Ended = "FIN"
	Reset Ended = "reset"
)

// End waits for the end of the other direction. It returns an error if octets arrive
// before that.
func (p *Peer) End() (Ended, error) {
	var b [64]byte
	n, err := p.Conn.Read(b[:])
	for whole := FPDU(nudge); n == len(whole) && bytes.Equal(b[:len(whole)-4], whole[:len(whole)-4]); { // compares all octets except the CRC
		p.Nudges++
		n, err = p.Conn.Read(b[:])
	}
	switch {
	case n != 0:
		return "", fmt.Errorf("%d octets where the end was due: %x", n, b[:n])
	case errors.Is(err, io.EOF):
		return FIN, nil
	case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		return Reset, nil
	}
	return "", fmt.Errorf("the end was due: %w", err)
}

// Terminated reads a Terminate and the FIN after it.
func (p *Peer) Terminated() (t Terminate, err error) {
	ulpdu, err := p.FPDU()
	if err != nil {
		return t, fmt.Errorf("a Terminate was due: %w", err)
	}
	if t, err = ParseTerminate(ulpdu); err != nil {
		return t, err
	}
	if end, err := p.End(); err != nil || end != FIN {
		return t, fmt.Errorf("behind a Terminate: %v, %v; want a FIN", end, err)
	}
	return t, nil
}

// Kill resets the connection.
func (p *Peer) Kill() error {
	return errors.Join(p.Conn.SetLinger(0), p.Conn.Close())
}
