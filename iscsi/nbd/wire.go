package nbd

import (
	"encoding/binary"
	"syscall"

	"github.com/stag-rdma/stag/iscsi/block"
)

// Magic numbers.
const (
	Magic            = 0x4e42444d41474943 // "NBDMAGIC"
	OptionMagic      = 0x49484156454f5054 // "IHAVEOPT"
	OptionReplyMagic = 0x0003e889045565a9
	RequestMagic     = 0x25609513
	SimpleReplyMagic = 0x67446698
)

// Handshake flags. The client's flags have the same numbers.
const (
	FixedNewstyle = 1
	NoZeroes      = 2
)

// Options.
const (
	OptExportName = 1
	OptAbort      = 2
	OptList       = 3
	OptInfo       = 6
	OptGo         = 7
)

// Replies to options. Those that are errors have the bit RepError.
const (
	RepAck    = 1
	RepServer = 2
	RepInfo   = 3

	RepError           = 1 << 31
	RepErrUnsupported  = RepError | 1
	RepErrInvalid      = RepError | 3
	RepErrUnknown      = RepError | 6
	RepErrBlockSizeReq = RepError | 8
	RepErrTooBig       = RepError | 9
)

// Kinds of information of RepInfo.
const (
	InfoExport    = 0 // size and transmission flags
	InfoBlockSize = 3
)

// Transmission flags.
const (
	HasFlags        = 1 << 0
	ReadOnly        = 1 << 1
	SendFlush       = 1 << 2
	SendFUA         = 1 << 3
	Rotational      = 1 << 4
	SendTrim        = 1 << 5
	SendWriteZeroes = 1 << 6
	CanMultiConn    = 1 << 8
)

// Commands.
const (
	CmdRead        = 0
	CmdWrite       = 1
	CmdDisconnect  = 2
	CmdFlush       = 3
	CmdTrim        = 4
	CmdWriteZeroes = 6
)

// Flags of commands.
const (
	FlagFUA    = 1 << 0
	FlagNoHole = 1 << 1
)

const (
	RequestLen = 28 // octets of the header of a request
	ReplyLen   = 16 // octets of a simple reply without data

	// MaxName is the length of the longest name of an export, and LongestReply that of the
	// longest reply to an option.
	MaxName      = 4096
	LongestReply = 64 << 10

	// MaxPayload is the length of the longest read and write that a server must take.
	MaxPayload = 32 << 20
)

// Request is the header of a request.
//
//	0        4       6      8        16       24      28
//	| magic  | flags | type | cookie | offset | length |
type Request struct {
	Flags, Type uint16
	Cookie      uint64
	Offset      uint64
	Length      uint32
}

// ParseRequest reads a header. ok is false if the magic number is wrong.
func ParseRequest(b *[RequestLen]byte) (r Request, ok bool) {
	r = Request{
		Flags: binary.BigEndian.Uint16(b[4:]), Type: binary.BigEndian.Uint16(b[6:]),
		Cookie: binary.BigEndian.Uint64(b[8:]), Offset: binary.BigEndian.Uint64(b[16:]), Length: binary.BigEndian.Uint32(b[24:]),
	}
	return r, binary.BigEndian.Uint32(b[:]) == RequestMagic
}

// Append appends the header to b.
func (r Request) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, RequestMagic)
	b = binary.BigEndian.AppendUint16(b, r.Flags)
	b = binary.BigEndian.AppendUint16(b, r.Type)
	b = binary.BigEndian.AppendUint64(b, r.Cookie)
	b = binary.BigEndian.AppendUint64(b, r.Offset)
	return binary.BigEndian.AppendUint32(b, r.Length)
}

// putReply writes a simple reply without its data.
func putReply(b *[ReplyLen]byte, e syscall.Errno, cookie uint64) {
	binary.BigEndian.PutUint32(b[:], SimpleReplyMagic)
	binary.BigEndian.PutUint32(b[4:], uint32(wireErrno(e)))
	binary.BigEndian.PutUint64(b[8:], cookie)
}

// wireErrno returns the errno that the protocol has for one of Linux. The numbers are the
// same.
func wireErrno(e syscall.Errno) syscall.Errno {
	switch e {
	case 0, syscall.EPERM, syscall.EIO, syscall.ENOMEM, syscall.EINVAL, syscall.ENOSPC, syscall.EOVERFLOW, syscall.ENOTSUP, syscall.ESHUTDOWN:
		return e
	}
	return syscall.EIO
}

// command is what a type of request does to a volume.
type command struct {
	op    block.Op
	flags uint16 // that a client may set
	known bool
}

// commands has a row for each command that a volume executes.
var commands = [CmdWriteZeroes + 1]command{
	CmdRead:        {block.Read, FlagFUA, true}, // FUA has no effect here
	CmdWrite:       {block.Write, FlagFUA, true},
	CmdFlush:       {block.Flush, FlagFUA, true},
	CmdTrim:        {block.Discard, FlagFUA, true},
	CmdWriteZeroes: {block.WriteZeroes, FlagFUA | FlagNoHole, true},
}

// transmissionFlags returns the flags of a volume. A flush of one connection makes the
// writes of all connections stable that have completed.
func transmissionFlags(s *block.Shape) uint16 {
	flags := uint16(HasFlags | SendFlush | CanMultiConn)
	set := func(on bool, f uint16) {
		if on {
			flags |= f
		}
	}
	set(s.ReadOnly, ReadOnly)
	set(s.Rotational, Rotational)
	set(!s.ReadOnly, SendFUA)
	set(!s.ReadOnly && s.Discard != 0, SendTrim)
	set(!s.ReadOnly && s.WriteZeroes != 0, SendWriteZeroes)
	return flags
}
