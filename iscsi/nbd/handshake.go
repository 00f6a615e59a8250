package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/stag-rdma/stag/iscsi/block"
)

// mostOptions limits the options of one handshake, and longestOption the data of one.
const (
	mostOptions   = 64
	longestOption = 16 << 10
)

// maxPlainBlock is the largest block that clients expect who ask for no block size.
const maxPlainBlock = 512

var (
	errClient  = errors.New("the client does not speak NBD with the fixed newstyle handshake")
	errOptions = fmt.Errorf("the client has sent %d options, and no request", mostOptions)
)

// handshake is the part of a connection before the requests.
type handshake struct {
	conn  io.ReadWriter
	name  string
	shape *block.Shape

	noZeroes bool
	out      []byte
}

// run negotiates. It reports whether requests follow.
func (h *handshake) run() (transmits bool, err error) {
	hello := binary.BigEndian.AppendUint64(nil, Magic)
	hello = binary.BigEndian.AppendUint64(hello, OptionMagic)
	hello = binary.BigEndian.AppendUint16(hello, FixedNewstyle|NoZeroes)
	if _, err := h.conn.Write(hello); err != nil {
		return false, err
	}
	var b [4]byte
	if _, err := io.ReadFull(h.conn, b[:]); err != nil {
		return false, silent(err)
	}
	flags := binary.BigEndian.Uint32(b[:])
	if flags&^(FixedNewstyle|NoZeroes) != 0 || flags&FixedNewstyle == 0 {
		return false, errClient
	}
	h.noZeroes = flags&NoZeroes != 0
	for range mostOptions {
		option, data, err := h.read()
		if err != nil {
			return false, silent(err)
		}
		h.out = h.out[:0]
		transmits, end := h.answer(option, data)
		if _, err := h.conn.Write(h.out); err != nil || end {
			return transmits && err == nil, err
		}
	}
	return false, errOptions
}

// silent returns nil if a client has left between two options.
func silent(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// read reads an option. data is nil if the data are too long: they are skipped.
func (h *handshake) read() (option uint32, data []byte, err error) {
	var b [16]byte
	if _, err := io.ReadFull(h.conn, b[:]); err != nil {
		return 0, nil, err
	}
	if binary.BigEndian.Uint64(b[:]) != OptionMagic {
		return 0, nil, errClient
	}
	option = binary.BigEndian.Uint32(b[8:])
	n := binary.BigEndian.Uint32(b[12:])
	if n > longestOption {
		if option == OptExportName { // no reply can refuse it
			return 0, nil, errClient
		}
		_, err := io.CopyN(io.Discard, h.conn, int64(n))
		return option, nil, err
	}
	data = make([]byte, n)
	_, err = io.ReadFull(h.conn, data)
	return option, data, err
}

// answer appends the answer to an option. end: the handshake is over.
func (h *handshake) answer(option uint32, data []byte) (transmits, end bool) {
	if data == nil {
		h.reply(option, RepErrTooBig, nil)
		return false, false
	}
	switch option {
	case OptExportName:
		if string(data) != h.name || h.shape.Block > maxPlainBlock {
			return false, true // no reply can refuse it
		}
		h.out = append(h.out, h.export()...)
		if !h.noZeroes {
			h.out = append(h.out, make([]byte, 124)...)
		}
		return true, true
	case OptAbort:
		h.reply(option, RepAck, nil)
		return false, true
	case OptList:
		h.list(data)
	case OptInfo, OptGo:
		ok := h.inform(option, data)
		return ok && option == OptGo, ok && option == OptGo
	default:
		h.reply(option, RepErrUnsupported, nil)
	}
	return false, false
}

// reply appends a reply to an option.
func (h *handshake) reply(option, kind uint32, data []byte) {
	h.out = binary.BigEndian.AppendUint64(h.out, OptionReplyMagic)
	h.out = binary.BigEndian.AppendUint32(h.out, option)
	h.out = binary.BigEndian.AppendUint32(h.out, kind)
	h.out = binary.BigEndian.AppendUint32(h.out, uint32(len(data)))
	h.out = append(h.out, data...)
}

// list answers OptList.
func (h *handshake) list(data []byte) {
	if len(data) != 0 {
		h.reply(OptList, RepErrInvalid, nil)
		return
	}
	h.reply(OptList, RepServer, append(binary.BigEndian.AppendUint32(nil, uint32(len(h.name))), h.name...))
	h.reply(OptList, RepAck, nil)
}

// export returns size and transmission flags.
func (h *handshake) export() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(h.shape.Size))
	return binary.BigEndian.AppendUint16(b, transmissionFlags(h.shape))
}

// inform answers OptInfo and OptGo, and reports whether the client may use the export.
func (h *handshake) inform(option uint32, data []byte) bool {
	name, kinds, ok := parseInfo(data)
	switch {
	case !ok:
		h.reply(option, RepErrInvalid, nil)
		return false
	case name != h.name:
		h.reply(option, RepErrUnknown, fmt.Appendf(nil, "there is no export %.100q here", name))
		return false
	}
	if slices.Contains(kinds, InfoBlockSize) {
		b := binary.BigEndian.AppendUint16(nil, InfoBlockSize)
		b = binary.BigEndian.AppendUint32(b, uint32(h.shape.Block))
		b = binary.BigEndian.AppendUint32(b, uint32(max(h.shape.Physical, preferredBlock)))
		h.reply(option, RepInfo, binary.BigEndian.AppendUint32(b, MaxPayload))
	} else if h.shape.Block > maxPlainBlock {
		h.reply(option, RepErrBlockSizeReq, fmt.Appendf(nil, "blocks have %d octets: ask for the block size", h.shape.Block))
		return false
	}
	h.reply(option, RepInfo, append(binary.BigEndian.AppendUint16(nil, InfoExport), h.export()...))
	h.reply(option, RepAck, nil)
	return true
}

// preferredBlock is the preferred block size, unless physical blocks are longer.
const preferredBlock = 4096

// parseInfo reads the data of OptInfo and OptGo: the name of an export, and the kinds of
// information that the client wants.
func parseInfo(b []byte) (name string, kinds []uint16, ok bool) {
	if len(b) < 6 {
		return "", nil, false
	}
	n := binary.BigEndian.Uint32(b)
	if n > MaxName || int(n) > len(b)-6 {
		return "", nil, false
	}
	name, b = string(b[4:4+n]), b[4+n:]
	if count := int(binary.BigEndian.Uint16(b)); len(b) != 2+2*count {
		return "", nil, false
	}
	for b = b[2:]; len(b) != 0; b = b[2:] {
		kinds = append(kinds, binary.BigEndian.Uint16(b))
	}
	return name, kinds, true
}
