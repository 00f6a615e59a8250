package ublk

import (
	"encoding/binary"
	"math/bits"

	"github.com/stag-rdma/stag/iscsi/block"
)

// Commands, as ioctl encodes direction, length of the structure, 'u' and number.
const (
	ctrlAddDev      = 0xc0207504
	ctrlDelDev      = 0xc0207505
	ctrlStartDev    = 0xc0207506
	ctrlStopDev     = 0xc0207507
	ctrlSetParams   = 0xc0207508
	ctrlGetDevInfo  = 0x80207502
	ctrlGetFeatures = 0x80207513
	ctrlDelDevAsync = 0x80207514 // Linux 6.9

	ioFetch          = 0xc0107520
	ioCommitAndFetch = 0xc0107521
)

// Flags of a device, which are features of the driver.
const featureIoctlEncode = 1 << 6

// Device states.
const stateLive = 1

// Kinds of parameters, and attributes.
const (
	paramBasic   = 1 << 0
	paramDiscard = 1 << 1

	attrReadOnly   = 1 << 0
	attrRotational = 1 << 1
	attrVolatile   = 1 << 2
	attrFUA        = 1 << 3
)

// Operations, and flags of a request.
const (
	opRead        = 0
	opWrite       = 1
	opFlush       = 2
	opDiscard     = 3
	opWriteZeroes = 5

	flagFUA = 1 << 13
)

const (
	anyDevice   = 1<<32 - 1 // the kernel chooses a number
	controlLen  = 32        // of struct ublksrv_ctrl_cmd
	infoLen     = 64        // of struct ublksrv_ctrl_dev_info
	paramsLen   = 60        // of struct ublk_params up to the discard parameters
	descLen     = 24        // of struct ublksrv_io_desc
	sectorShift = 9
)

// info is struct ublksrv_ctrl_dev_info.
//
//	0        2       4       6      8       12    16    20     24      32
//	| queues | depth | state | pad | buffer | id | pid | pad | flags | ... |
type info struct {
	queues, depth, state uint16
	buffer               uint32 // octets of the data of one request
	id                   uint32
	pid                  int32
	flags                uint64
}

func (i *info) put(b []byte) {
	clear(b[:infoLen])
	binary.NativeEndian.PutUint16(b, i.queues)
	binary.NativeEndian.PutUint16(b[2:], i.depth)
	binary.NativeEndian.PutUint16(b[4:], i.state)
	binary.NativeEndian.PutUint32(b[8:], i.buffer)
	binary.NativeEndian.PutUint32(b[12:], i.id)
	binary.NativeEndian.PutUint32(b[16:], uint32(i.pid))
	binary.NativeEndian.PutUint64(b[24:], i.flags)
}

func parseInfo(b []byte) info {
	return info{
		queues: binary.NativeEndian.Uint16(b), depth: binary.NativeEndian.Uint16(b[2:]), state: binary.NativeEndian.Uint16(b[4:]),
		buffer: binary.NativeEndian.Uint32(b[8:]), id: binary.NativeEndian.Uint32(b[12:]), pid: int32(binary.NativeEndian.Uint32(b[16:])),
		flags: binary.NativeEndian.Uint64(b[24:]),
	}
}

// putParams writes struct ublk_params.
//
//	0     4       8       12..15     16           20       24         32               40
//	| len | types | attrs | shifts | max sectors | chunk | sectors | virtual boundary |
//	| alignment | granularity | max discard | max write zeroes | segments | reserved |
func putParams(b []byte, s *block.Shape, buffer int) {
	clear(b[:paramsLen])
	u32 := func(at int, v int64) { binary.NativeEndian.PutUint32(b[at:], uint32(v)) }
	u32(0, paramsLen)
	u32(4, paramBasic|paramDiscard)
	u32(8, attributes(s))
	b[12] = shift(int64(s.Block))
	b[13] = max(b[12], shift(s.Physical))
	b[14] = max(b[13], shift(s.Optimal))
	b[15] = b[13]
	u32(16, int64(buffer)>>sectorShift)
	binary.NativeEndian.PutUint64(b[24:], uint64(s.Size)>>sectorShift)
	u32(44, max(s.DiscardUnit, int64(s.Block)))
	u32(48, s.Discard>>sectorShift)
	u32(52, s.WriteZeroes>>sectorShift)
	binary.NativeEndian.PutUint16(b[56:], 1)
}

// shift returns the logarithm of the greatest power of two up to n.
func shift(n int64) byte {
	if n <= 0 {
		return 0
	}
	return byte(bits.Len64(uint64(n)) - 1)
}

func attributes(s *block.Shape) (a int64) {
	if s.ReadOnly {
		a |= attrReadOnly
	}
	if s.Rotational {
		a |= attrRotational
	}
	if s.WriteCache {
		a |= attrVolatile | attrFUA
	}
	return a
}

// operations has the operation of a volume for each of the kernel, by number.
var operations = map[uint32]block.Op{
	opRead: block.Read, opWrite: block.Write, opFlush: block.Flush, opDiscard: block.Discard, opWriteZeroes: block.WriteZeroes,
}

// parseDesc reads struct ublksrv_io_desc. ok is false if this package does not know the
// operation.
//
//	0           4         8              16     24
//	| op, flags | sectors | first sector | addr |
func parseDesc(b []byte) (r block.Request, ok bool) {
	word := binary.NativeEndian.Uint32(b)
	op, ok := operations[word&0xff]
	return block.Request{
		Op: op, FUA: word&flagFUA != 0,
		Offset: int64(binary.NativeEndian.Uint64(b[8:])) << sectorShift, Length: int64(binary.NativeEndian.Uint32(b[4:])) << sectorShift,
	}, ok
}
