package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/offload/octets"
)

// liar is an end of a session that sends what it may not send. It uses the kernel's TCP.
type liar struct {
	net.Conn
	params    login.Params
	commanded chan struct{} // gets an element for each command, if there is room
}

// Patterns of the demonstration: the memory that a lie must not change, the data that the
// honest part of the liar sends, and the data of the lie.
const (
	treasure octets.Pattern = 0x7ea5
	honest   octets.Pattern = 0x900d
	forged   octets.Pattern = 0xbad
)

// read reads one PDU.
func (l *liar) read() (h pdu.Header, data []byte, err error) {
	if _, err = io.ReadFull(l, h[:]); err != nil {
		return h, nil, err
	}
	data = make([]byte, pdu.Padded(h.DataLength()))
	_, err = io.ReadFull(l, data)
	return h, data[:h.DataLength()], err
}

// write sends a PDU with a data segment of n octets of a pattern.
func (l *liar) write(h *pdu.Header, p octets.Pattern, n int) error {
	h.SetDataLength(n)
	b := make([]byte, pdu.Padded(n))
	p.Fill(b[:n], 0)
	_, err := l.Write(append(h[:], b...))
	return err
}

// phase is the machine of a login, of either end.
type phase interface {
	Step(h *pdu.Header, data, out []byte) (_ []byte, done bool, err error)
}

// logIn runs a login to its end.
func (l *liar) logIn(m phase, first []byte) error {
	if _, err := l.Write(first); err != nil {
		return err
	}
	for {
		h, data, err := l.read()
		if err != nil {
			return err
		}
		out, done, err := m.Step(&h, data, nil)
		if _, failed := l.Write(out); err != nil || done || failed != nil {
			return errors.Join(err, failed)
		}
	}
}

// anyone is the registry of a target that lets everybody in.
type anyone struct{}

func (anyone) Policy(*login.Request) login.Policy     { return login.Policy{PortalGroupTag: 1} }
func (anyone) Existing(*login.Request) login.Existing { return login.Existing{} }
func (anyone) Enter(*login.Request, login.Action, *login.Params) (uint16, pdu.LoginStatus) {
	return 1, pdu.LoginSuccess
}

// beTarget serves one session, in which it tells a lie for each command.
func (l *liar) beTarget(tell func(l *liar, command *pdu.Header) error) error {
	m, err := login.NewTarget(login.TargetConfig{Registry: anyone{}, Window: 8})
	if err != nil {
		return err
	}
	if err := l.logIn(m, nil); err != nil {
		return err
	}
	l.params = m.Params()
	var last pdu.Header // the command that has no answer yet
	for {
		h, _, err := l.read()
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.AdvancesCmdSN() {
			l.params.CmdSN = h.CmdSN() + 1
		}
		switch h.Opcode() {
		case pdu.OpCommand:
			last = h
			select {
			case l.commanded <- struct{}{}:
			default:
			}
			err = tell(l, &h)
		case pdu.OpTask: // the initiator aborts the command, whose data is on its way
			err = errors.Join(l.dataIn(&last, pdu.Tag(last.InitiatorTaskTag()), 0, 0, forged, false), l.answer(pdu.OpTaskResponse, &h))
		case pdu.OpLogout:
			err = l.answer(pdu.OpLogoutResponse, &h)
		}
		if err != nil {
			return err
		}
	}
}

// reply begins a PDU of a target.
func (l *liar) reply(op pdu.Opcode, tag pdu.Tag) *pdu.Header {
	h := new(pdu.Header)
	h.Reset(op)
	h.SetFlags(pdu.Final)
	h.SetInitiatorTaskTag(tag)
	h.SetExpCmdSN(l.params.CmdSN)
	h.SetMaxCmdSN(l.params.CmdSN + 7)
	return h
}

// answer ends a command or a request with success.
func (l *liar) answer(op pdu.Opcode, to *pdu.Header) error {
	h := l.reply(op, to.InitiatorTaskTag())
	h.SetStatSN(l.params.StatSN)
	l.params.StatSN++
	return l.write(h, 0, 0)
}

// dataIn sends a block of Data-In, with the status or without.
func (l *liar) dataIn(command *pdu.Header, tag pdu.Tag, sn, off uint32, p octets.Pattern, status bool) error {
	h := l.reply(pdu.OpDataIn, tag)
	h.SetTargetTransferTag(pdu.NoTag)
	h.SetDataSN(sn)
	h.SetBufferOffset(off)
	h.SetLUN(command.LUN())
	if status {
		h.SetFlags(pdu.Final | pdu.StatusPresent)
		h.SetStatSN(l.params.StatSN)
		l.params.StatSN++
	}
	return l.write(h, p, blockSize)
}

// beInitiator logs in, writes a block and tells a lie before it sends the block. It returns
// the status of the command.
func (l *liar) beInitiator(ctx context.Context, isid pdu.ISID, tell func(l *liar, r2t *pdu.Header) error) (status uint8, err error) {
	m, err := login.NewInitiator(login.InitiatorConfig{
		Name: demoInitiator + "-liar", Target: demoTarget, ISID: isid, Tag: 1, CmdSN: 1, Wishes: login.Wishes{NoImmediateData: true, RequireR2T: true},
	})
	if err != nil {
		return 0, err
	}
	if err := l.logIn(m, m.Start(nil)); err != nil {
		return 0, err
	}
	l.params = m.Params()
	var h pdu.Header
	h.Reset(pdu.OpCommand)
	h.SetFlags(pdu.Final | pdu.Write)
	h.SetLUN(demoLUN << 48)
	h.SetInitiatorTaskTag(lieTag)
	h.SetEDTL(blockSize)
	cdb := scsi.Write(lieBlock, 1, 0)
	h.SetCDB(cdb[:10])
	h.SetCmdSN(l.params.CmdSN)
	if err := l.write(&h, 0, 0); err != nil {
		return 0, err
	}
	for ctx.Err() == nil {
		h, _, err := l.read()
		if err != nil {
			return 0, err
		}
		switch h.Opcode() {
		case pdu.OpR2T:
			if err := errors.Join(tell(l, &h), l.dataOut(h.TargetTransferTag(), 0, 0, honest)); err != nil {
				return 0, err
			}
		case pdu.OpResponse:
			return h.Status(), nil
		case pdu.OpReject:
		default:
			return 0, fmt.Errorf("the target sent %v", h.Opcode())
		}
	}
	return 0, context.Cause(ctx)
}

const (
	lieTag   = 7
	lieBlock = 8 // block of the disk that the lying initiator writes
)

// dataOut sends a block of Data-Out.
func (l *liar) dataOut(tag pdu.Tag, sn, off uint32, p octets.Pattern) error {
	var h pdu.Header
	h.Reset(pdu.OpDataOut)
	h.SetFlags(pdu.Final)
	h.SetLUN(demoLUN << 48)
	h.SetInitiatorTaskTag(lieTag)
	h.SetTargetTransferTag(tag)
	h.SetDataSN(sn)
	h.SetBufferOffset(off)
	return l.write(&h, p, blockSize)
}

// hurry makes the liar's calls fail when ctx ends.
func (l *liar) hurry(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { l.SetDeadline(time.Unix(1, 0)) })
}
