package memgroup

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/tpt"
)

// The messages of the protocol are packets of a SEQPACKET socket, big-endian. A question
// is one packet, the answer one packet or several. The first packet of the answer carries
// the file of the region heap (SCM_RIGHTS).
//
//	0        4         5      6       8           10         12       16       24
//	| magic  | version | kind | flags | owner     | count    | total  | heap   |
//
// A question has only the asker's number in the field owner, and the STag in total. In an
// answer, owner is the number of the owner, count the items of this packet, total those of
// all packets, and heap the size of the file in octets. Each item has 40 octets:
//
//	0      4    8        9     10    12    16      24       32
//	| STag | PD | rights | why | file| 0   | start | offset | length |
const (
	headLen = 24
	itemLen = 40

	magic   = "stgl"
	version = 1

	kindQuestion = 1
	kindAnswer   = 2

	flagLast = 1 // no packet of the answer follows

	// maxItems is how many items a packet has at most.
	maxItems  = 800
	maxPacket = headLen + maxItems*itemLen
)

// Why is the reason why a region cannot be used by another process.
type Why uint8

// These are the reasons.
const (
	Shareable   Why = iota
	NotInHeap       // its memory has no descriptor
	PageList        // its memory is scattered
	OfQueuePair     // only one queue pair of the owner may use it
	OfOneTouch      // it ends with its first use, which only the owner can record

	whys
)

var whyTexts = [whys]string{
	Shareable:   "shareable",
	NotInHeap:   "not shareable: its memory is the application's own and has no descriptor: use AllocMR",
	PageList:    "not shareable: its memory is scattered: use AllocMR",
	OfQueuePair: "not shareable: it is limited to one queue pair: leave MROptions.QP out",
	OfOneTouch:  "not shareable: it has OneTouch: leave that out",
}

func (w Why) String() string {
	if w < whys {
		return whyTexts[w]
	}
	return fmt.Sprintf("reason %d", uint8(w))
}

// Item is a region or window of the owner.
type Item struct {
	STag   tpt.STag
	PD     tpt.PD
	Rights tpt.Rights
	Why    Why
	Start  uint64 // tagged offset of the first octet
	Offset uint64 // of the first octet in the file; 0 unless Why is Shareable
	Length uint64 // octets
}

// head is the head of a packet.
type head struct {
	kind  uint8
	last  bool
	owner uint16
	count int
	total uint32
	heap  uint64
}

func (h *head) append(b []byte) []byte {
	flags := uint16(0)
	if h.last {
		flags = flagLast
	}
	b = append(b, magic...)
	b = append(b, version, h.kind)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint16(b, h.owner)
	b = binary.BigEndian.AppendUint16(b, uint16(h.count))
	b = binary.BigEndian.AppendUint32(b, h.total)
	return binary.BigEndian.AppendUint64(b, h.heap)
}

func (i *Item) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(i.STag))
	b = binary.BigEndian.AppendUint32(b, uint32(i.PD))
	b = append(b, byte(i.Rights), byte(i.Why), 0, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, i.Start)
	b = binary.BigEndian.AppendUint64(b, i.Offset)
	return binary.BigEndian.AppendUint64(b, i.Length)
}

// errMalformed is the cause of errors of packets that break the format.
var errMalformed = errors.New("malformed packet")

func parseHead(b []byte, kind uint8) (h head, items []byte, err error) {
	if len(b) < headLen || string(b[:4]) != magic {
		return head{}, nil, fmt.Errorf("%w: no head", errMalformed)
	}
	if b[4] != version {
		return head{}, nil, fmt.Errorf("%w: version %d, want %d: use the same stag in all processes of a group", errMalformed, b[4], version)
	}
	flags := binary.BigEndian.Uint16(b[6:])
	h = head{
		kind: b[5], last: flags&flagLast != 0,
		owner: binary.BigEndian.Uint16(b[8:]), count: int(binary.BigEndian.Uint16(b[10:])),
		total: binary.BigEndian.Uint32(b[12:]), heap: binary.BigEndian.Uint64(b[16:]),
	}
	items = b[headLen:]
	if h.kind != kind || flags&^flagLast != 0 || h.count > maxItems || len(items) != h.count*itemLen {
		return head{}, nil, fmt.Errorf("%w: kind %d, flags %#x, %d items in %d octets", errMalformed, h.kind, flags, h.count, len(items))
	}
	return h, items, nil
}

// maxHeap limits the size of a heap in octets.
const maxHeap = 1 << 47

// parseItem parses an item, whose octets must lie in a file of heap octets.
func parseItem(b []byte, heap uint64) (Item, error) {
	i := Item{
		STag: tpt.STag(binary.BigEndian.Uint32(b)), PD: tpt.PD(binary.BigEndian.Uint32(b[4:])),
		Rights: tpt.Rights(b[8]), Why: Why(b[9]),
		Start: binary.BigEndian.Uint64(b[16:]), Offset: binary.BigEndian.Uint64(b[24:]), Length: binary.BigEndian.Uint64(b[32:]),
	}
	switch {
	case [6]byte(b[10:16]) != [6]byte{} || i.Why >= whys:
		return Item{}, fmt.Errorf("%w: STag %v has unknown fields", errMalformed, i.STag)
	case i.PD&tpt.SharedPD == 0:
		return Item{}, fmt.Errorf("%w: STag %v is of a protection domain that is not the group's", errMalformed, i.STag)
	case i.Why == Shareable && (i.Length == 0 || i.Offset > heap || i.Length > heap-i.Offset):
		return Item{}, fmt.Errorf("%w: STag %v has %d octets at %d of a file of %d", errMalformed, i.STag, i.Length, i.Offset, heap)
	case i.Why != Shareable && i.Offset != 0:
		return Item{}, fmt.Errorf("%w: STag %v cannot be shared, and has an offset", errMalformed, i.STag)
	}
	return i, nil
}

// list is an owner's list while its packets arrive.
type list struct {
	owner uint16
	heap  uint64
	total uint32
	items []Item
	whole bool // the last packet has arrived
}

// add adds a packet. most is how many items an owner can have.
func (l *list) add(packet []byte, most uint32) error {
	h, rest, err := parseHead(packet, kindAnswer)
	if err != nil {
		return err
	}
	first := len(l.items) == 0
	switch {
	case l.whole:
		return fmt.Errorf("%w: it follows the last one", errMalformed)
	case h.total > most || h.heap == 0 || h.heap > maxHeap || h.heap%4096 != 0:
		return fmt.Errorf("%w: %d STags, a heap of %d octets", errMalformed, h.total, h.heap)
	case h.count == 0 && h.total != 0:
		return fmt.Errorf("%w: an empty part of a list", errMalformed)
	case first:
		l.owner, l.heap, l.total = h.owner, h.heap, h.total
	case h.owner != l.owner || h.heap != l.heap || h.total != l.total:
		return fmt.Errorf("%w: it does not continue the list", errMalformed)
	}
	if l.whole = h.last; uint64(len(l.items)+h.count) > uint64(l.total) || l.whole != (uint32(len(l.items)+h.count) == l.total) {
		return fmt.Errorf("%w: %d of %d STags, last %v", errMalformed, len(l.items)+h.count, l.total, h.last)
	}
	for ; len(rest) != 0; rest = rest[itemLen:] {
		i, err := parseItem(rest[:itemLen], h.heap)
		if err != nil {
			return err
		}
		l.items = append(l.items, i)
	}
	return nil
}

// find returns the item of s.
func (l *list) find(s tpt.STag) (Item, bool) {
	for _, i := range l.items {
		if i.STag == s {
			return i, true
		}
	}
	return Item{}, false
}

// packets returns the answer with a list of items.
func packets(owner uint16, heap uint64, items []Item) (all [][]byte) {
	total := len(items)
	for {
		n := min(len(items), maxItems)
		h := head{kind: kindAnswer, last: n == len(items), owner: owner, count: n, total: uint32(total), heap: heap}
		b := h.append(make([]byte, 0, headLen+n*itemLen))
		for i := range items[:n] {
			b = items[i].append(b)
		}
		all = append(all, b)
		if items = items[n:]; len(items) == 0 {
			return all
		}
	}
}
