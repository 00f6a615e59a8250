package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
)

// errSilent is the error for a peer that sends too little in time.
var errSilent = errors.New("the peer was silent")

// readFrame reads one MPA Request or Reply. readFrame reads no octet behind the frame,
// because the next owner of the connection needs those octets. what is the name of the
// frame in errors.
func readFrame(c net.Conn, what string) ([]byte, error) {
	frame := make([]byte, wire.MPAFrameLen)
	if n, err := io.ReadFull(c, frame); err != nil {
		return nil, unread(n, what, err)
	}
	total, err := mpa.FrameLength(frame)
	if err != nil {
		return nil, err
	}
	frame = append(frame, make([]byte, total-len(frame))...)
	if n, err := io.ReadFull(c, frame[wire.MPAFrameLen:]); err != nil {
		return nil, unread(wire.MPAFrameLen+n, what, err)
	}
	return frame, nil
}

// unread returns the error for a frame of which only n octets could be read.
func unread(n int, what string, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%d octets of the MPA %s have come: %w", n, what, errSilent)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the peer closed the connection after %d octets of its MPA %s", n, what)
	}
	return fmt.Errorf("read the peer's MPA %s: %w", what, err)
}

// bound makes c's reads and writes fail when ctx ends. free undoes this.
func bound(ctx context.Context, c net.Conn) (free func()) {
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	return func() {
		stop()
		c.SetDeadline(time.Time{})
	}
}

// early reports whether the peer has sent octets that have not been read, or has closed
// its direction. early removes no octet from the socket.
func early(c *net.TCPConn) (octets, closed bool, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false, false, err
	}
	var one [1]byte
	var n int
	var failed error
	err = raw.Control(func(fd uintptr) {
		n, _, failed = unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	switch {
	case err != nil:
		return false, false, err
	case errors.Is(failed, unix.EAGAIN):
		return false, false, nil
	case failed != nil:
		return false, true, failed
	}
	return n > 0, n == 0, nil
}

// emitted collects an FPDU that is written to the socket.
type emitted struct{ b []byte }

func (e *emitted) Emit(n int) []byte {
	e.b = append(e.b, make([]byte, n)...)
	return e.b[len(e.b)-n:]
}

// terminateFPDU returns the Terminate that an initiator must send if it cannot agree to
// a Reply (RFC 6581 §8). The Terminate has layer 2, type 0 and no headers. The CRC and
// Markers that the Reply asks for already apply to this FPDU.
func terminateFPDU(o mpa.Offer, reply []byte, code uint8) []byte {
	h, _, ok := wire.ParseMPA(reply)
	f := mpa.NewFramer(!o.NoCRC || ok && h.Flags().Has(wire.MPACRC), ok && h.Flags().Has(wire.MPAMarkers))
	ulpdu := wire.UntaggedFields{
		Last: true, Opcode: wire.OpTerminate, Queue: wire.QueueTerminate, MSN: 1,
	}.Append(nil)
	ulpdu = wire.TerminateFields{Layer: wire.LayerLLP, Code: code}.Append(ulpdu)
	var out emitted
	copy(f.Begin(&out, len(ulpdu)), ulpdu)
	f.End()
	return out.b
}

// propose is the initiator's part of the MPA exchange. propose sends the Request, calls
// sent unless it is nil, and reads the Reply.
func propose(c *net.TCPConn, o mpa.Offer, sent func()) (mpa.Agreed, error) {
	request, err := o.Request()
	if err != nil {
		return mpa.Agreed{}, err
	}
	if _, err := c.Write(request); err != nil {
		return mpa.Agreed{}, fmt.Errorf("send the MPA Request: %w", err)
	}
	if sent != nil {
		sent()
	}
	reply, err := readFrame(c, "Reply")
	if err != nil {
		return mpa.Agreed{}, err
	}
	agreed, err := o.ReadReply(reply)
	var mismatch *mpa.Mismatch
	if errors.As(err, &mismatch) {
		// The connection ends anyway, so a failed write of the Terminate is ignored.
		_, _ = c.Write(terminateFPDU(o, reply, mismatch.Code))
	}
	return agreed, err
}
