package wire

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/offload/seq"
)

// TCP options that appear outside SYN segments. Append writes each option at a multiple
// of 4 octets, behind two NOPs, as RFC 7323 appendix A advises:
//
//	0     1    2    3    4       8       12
//	| NOP | NOP | 8 | 10 | TSval | TSecr |                 RFC 7323 §3.2
//
//	0     1    2    3        4      8       12
//	| NOP | NOP | 5 | 8n + 2 | left | right | ...          RFC 2018 §3
const (
	optEnd  = 0
	optNOP  = 1
	optSACK = 5
	optTS   = 8

	optTSLen      = 10
	optTSPadded   = 12
	optSACKHead   = 2 // length of kind and length octets
	optSACKBlock  = 8
	optSACKPadded = 4 // length of NOPs, kind and length octets
)

// tsWord is the first word of the timestamps option in nearly every segment.
const tsWord = optNOP<<24 | optNOP<<16 | optTS<<8 | optTSLen

// parseOptions reads an option list. If the length of an option is impossible,
// parseOptions returns false and does not read the rest. If an option is repeated, the
// last one counts.
func (f *TCPFields) parseOptions(b []byte) (sound bool) {
	if len(b) >= optTSPadded && binary.BigEndian.Uint32(b) == tsWord {
		f.setTS(b[2:])
		b = b[optTSPadded:]
	}
	for len(b) > 0 {
		switch b[0] {
		case optEnd:
			return true
		case optNOP:
			b = b[1:]
			continue
		}
		if len(b) < 2 || b[1] < 2 || int(b[1]) > len(b) {
			return false
		}
		f.option(b[:b[1]])
		b = b[b[1]:]
	}
	return true
}

// option reads one option of any kind except end and NOP. option ignores a known option
// of the wrong length.
func (f *TCPFields) option(o []byte) {
	switch {
	case o[0] == optTS && len(o) == optTSLen:
		f.setTS(o)
	case o[0] == optSACK && len(o) > optSACKHead && (len(o)-optSACKHead)%optSACKBlock == 0:
		f.NSACK = 0
		for b := o[optSACKHead:]; len(b) >= optSACKBlock && f.NSACK < MaxSACK; b = b[optSACKBlock:] {
			f.SACK[f.NSACK] = SACKBlock{
				Left:  seq.Num(binary.BigEndian.Uint32(b)),
				Right: seq.Num(binary.BigEndian.Uint32(b[4:])),
			}
			f.NSACK++
		}
		clear(f.SACK[f.NSACK:])
	}
}

func (f *TCPFields) setTS(o []byte) {
	f.HasTS = true
	f.TSVal = binary.BigEndian.Uint32(o[2:])
	f.TSEcr = binary.BigEndian.Uint32(o[6:])
}

// sackFit returns how many SACK blocks Append writes. With timestamps, one block fewer
// fits (RFC 2018 §3).
func (f *TCPFields) sackFit() int {
	most := uint8(MaxSACK)
	if f.HasTS {
		most--
	}
	return int(min(f.NSACK, most))
}

func (f *TCPFields) appendOptions(b []byte) []byte {
	if f.HasTS {
		b = append(b, optNOP, optNOP, optTS, optTSLen)
		b = binary.BigEndian.AppendUint32(b, f.TSVal)
		b = binary.BigEndian.AppendUint32(b, f.TSEcr)
	}
	n := f.sackFit()
	if n > 0 {
		b = append(b, optNOP, optNOP, optSACK, uint8(optSACKHead+n*optSACKBlock))
	}
	for _, block := range f.SACK[:n] {
		b = binary.BigEndian.AppendUint32(b, uint32(block.Left))
		b = binary.BigEndian.AppendUint32(b, uint32(block.Right))
	}
	return b
}
