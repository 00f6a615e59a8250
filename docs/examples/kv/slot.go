package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"hash/fnv"
)

// The table has slots of equal length. A key is in one of the probes slots that begin at
// the hash of the key: in the first one that was free when the key was stored.
const (
	slots    = 1024
	slotLen  = 256 // in octets
	probes   = 8
	maxKey   = 64  // in octets
	maxValue = 160 // in octets
)

// slot is the content of a slot of the table. In memory it is big-endian:
//
//	0          8         16     17       18    18+k    18+k+v      256
//	| checksum | version | k    | v      | key | value | anything    |
//
// The checksum is the CRC-64 of all octets after it. A Read that arrives
// while the server writes to the slot may return octets of two versions. The checksum is
// then wrong, and the reader reads again. The version is the number of puts to the slot. 0
// means that the slot is free.
type slot struct {
	version    uint64
	key, value string
}

var table = crc64.MakeTable(crc64.ECMA)

// errTorn means that the octets are a mixture of versions.
var errTorn = errors.New("the slot was written to meanwhile")

// encode writes s to the memory of a slot.
func (s slot) encode(mem []byte) {
	binary.BigEndian.PutUint64(mem[8:], s.version)
	mem[16], mem[17] = byte(len(s.key)), byte(len(s.value))
	copy(mem[18:], s.key)
	copy(mem[18+len(s.key):], s.value)
	binary.BigEndian.PutUint64(mem, crc64.Checksum(mem[8:slotLen], table))
}

// decode parses the memory of a slot. The octets come from another process, so decode
// checks all of them.
func decode(mem []byte) (s slot, err error) {
	if binary.BigEndian.Uint64(mem) != crc64.Checksum(mem[8:slotLen], table) {
		return s, errTorn
	}
	k, v := int(mem[16]), int(mem[17])
	if k > maxKey || v > maxValue {
		return s, fmt.Errorf("a slot with a key of %d octets and a value of %d", k, v)
	}
	return slot{binary.BigEndian.Uint64(mem[8:]), string(mem[18 : 18+k]), string(mem[18+k : 18+k+v])}, nil
}

// place returns the number of the slot to try after tried other slots.
func place(key string, tried int) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return (int(h.Sum32()) + tried) % slots
}

// check returns an error if the key is empty or too long, or if the value is too long.
func check(key, value string) error {
	if len(key) < 1 || len(key) > maxKey || len(value) > maxValue {
		return fmt.Errorf("a key of %d octets and a value of %d: choose 1 to %d and 0 to %d", len(key), len(value), maxKey, maxValue)
	}
	return nil
}
