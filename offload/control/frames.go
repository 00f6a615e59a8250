package control

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/stag-rdma/stag/offload/report"
)

// A capture is a stream of frames. Each frame begins with its kind and the length of
// the rest. All numbers are in network order.
//
//	0      1        5
//	| kind | length | ...
//
// A packet has the fields of report.Packet, then the name of the device, then the
// octets of the packet.
//
//	0    8       10    11     15   19       23              24
//	| at | queue | out | flow | qp | length | name's length | name | data
//
// A stream is a report.Stream as JSON, and a move is a report.Move as JSON. The end of a batch contains the number of lost
// packets in 8 octets.
const (
	framePacket = 'p'
	frameStream = 's'
	frameMove   = 'm'
	frameEnd    = 'e'

	frameHead  = 5
	packetHead = 24

	maxName   = 255 // length of a device name
	maxFrame  = packetHead + maxName + report.MaxLength
	maxStream = 4096

	// batchMemory is about how much memory in octets a batch takes at most when it is
	// read. A larger batch comes in pieces.
	batchMemory = 16 << 20
	perPacket   = 128 // about the size of a report.Packet without its data
)

var errFrame = errors.New("what comes is no capture")

func appendBatch(b []byte, batch report.Batch) ([]byte, error) {
	for _, s := range batch.Streams {
		text, err := json.Marshal(s)
		if err != nil || len(text) > maxStream {
			return nil, errors.Join(err, fmt.Errorf("a stream of %d octets", len(text)))
		}
		b = append(appendHead(b, frameStream, len(text)), text...)
	}
	for _, m := range batch.Moves {
		text, err := json.Marshal(m)
		if err != nil || len(text) > maxStream {
			return nil, errors.Join(err, fmt.Errorf("a move of %d octets", len(text)))
		}
		b = append(appendHead(b, frameMove, len(text)), text...)
	}
	for _, p := range batch.Packets {
		if len(p.Device) > maxName || len(p.Data) > p.Length || p.Length > report.MaxLength {
			return nil, fmt.Errorf("a packet of %d octets, %d of them captured, on %q", p.Length, len(p.Data), p.Device)
		}
		b = appendHead(b, framePacket, packetHead+len(p.Device)+len(p.Data))
		b = binary.BigEndian.AppendUint64(b, uint64(p.At.UnixNano()))
		b = binary.BigEndian.AppendUint16(b, p.Queue)
		b = append(b, flag(p.Out))
		b = binary.BigEndian.AppendUint32(b, p.Flow)
		b = binary.BigEndian.AppendUint32(b, p.QP)
		b = binary.BigEndian.AppendUint32(b, uint32(p.Length))
		b = append(b, uint8(len(p.Device)))
		b = append(append(b, p.Device...), p.Data...)
	}
	return binary.BigEndian.AppendUint64(appendHead(b, frameEnd, 8), batch.Lost), nil
}

func appendHead(b []byte, kind byte, length int) []byte {
	return binary.BigEndian.AppendUint32(append(b, kind), uint32(length))
}

func flag(yes bool) byte {
	if yes {
		return 1
	}
	return 0
}

// frames reads batches from an engine that may want to do harm.
type frames struct {
	from io.Reader
	lost uint64
	part bool // the last batch was a piece, and the next batch continues it
}

// next returns the next batch, or a piece of it. next returns io.EOF only if the stream
// ends where a batch would begin.
func (f *frames) next() (b report.Batch, err error) {
	memory := 0
	for memory < batchMemory {
		kind, body, err := f.frame()
		if err == io.EOF && (f.part || memory > 0) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return report.Batch{}, err
		}
		memory += perPacket + len(body)
		switch kind {
		case framePacket:
			p, err := parsePacket(body)
			if err != nil {
				return report.Batch{}, err
			}
			b.Packets = append(b.Packets, p)
		case frameStream:
			var s report.Stream
			if err := json.Unmarshal(body, &s); err != nil {
				return report.Batch{}, fmt.Errorf("%w: %w", errFrame, err)
			}
			b.Streams = append(b.Streams, s)
		case frameMove:
			var m report.Move
			if err := json.Unmarshal(body, &m); err != nil {
				return report.Batch{}, fmt.Errorf("%w: %w", errFrame, err)
			}
			m.At = m.At.Local()
			b.Moves = append(b.Moves, m)
		case frameEnd:
			f.lost, f.part = binary.BigEndian.Uint64(body), false
			b.Lost = f.lost
			return b, nil
		}
	}
	f.part, b.Lost = true, f.lost
	return b, nil
}

// lengths are the smallest and the largest length in octets of each kind of frame.
var lengths = map[byte][2]uint32{framePacket: {packetHead, maxFrame}, frameStream: {2, maxStream}, frameMove: {2, maxStream}, frameEnd: {8, 8}}

// frame reads one frame. frame checks the length before it reads the rest.
func (f *frames) frame() (kind byte, body []byte, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(f.from, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	limit, known := lengths[head[0]]
	if !known || n < limit[0] || n > limit[1] {
		return 0, nil, fmt.Errorf("%w: a frame of kind %#x and %d octets", errFrame, head[0], n)
	}
	body = make([]byte, n)
	if _, err := io.ReadFull(f.from, body); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return head[0], body, nil
}

// parsePacket reads a packet. The packet keeps b, which must have at least packetHead
// octets.
func parsePacket(b []byte) (p report.Packet, err error) {
	name, length := int(b[23]), binary.BigEndian.Uint32(b[19:])
	rest := b[packetHead:]
	if name > len(rest) || length > report.MaxLength || len(rest)-name > int(length) || b[10] > 1 {
		return p, fmt.Errorf("%w: a packet of %d octets in a frame of %d", errFrame, length, len(b))
	}
	return report.Packet{
		At: time.Unix(0, int64(binary.BigEndian.Uint64(b))), Queue: binary.BigEndian.Uint16(b[8:]), Out: b[10] == 1,
		Flow: binary.BigEndian.Uint32(b[11:]), QP: binary.BigEndian.Uint32(b[15:]), Length: int(length),
		Device: string(rest[:name]), Data: rest[name:],
	}, nil
}
