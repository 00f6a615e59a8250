package pdu

import (
	"bytes"
	"errors"
)

// ErrText is the error for a text that is no list of key=value pairs.
var ErrText = errors.New("iscsi: text without '=' or without the NUL octet at the end of a pair")

// MaxKeyLen is the greatest length of a key in octets (RFC 7143 §6.1).
const MaxKeyLen = 63

// Text iterates over the key=value pairs of a data segment (RFC 7143 §6.1). If a PDU has
// Continue set, the pairs go on in the next PDU: the caller first joins the data
// segments.
//
//	for t := pdu.NewText(data); t.Next(); {
//		use(t.Key, t.Value)
//	}
type Text struct {
	Key, Value []byte // the pair that Next found; they alias the text
	rest       []byte
	err        error
}

// NewText returns an iterator over text. The iterator keeps text, and does not copy it.
func NewText(text []byte) Text { return Text{rest: text} }

// Next moves to the next pair. It returns false after the last pair or at an error.
// Superfluous NUL octets between pairs are skipped.
func (t *Text) Next() bool {
	for len(t.rest) > 0 && t.rest[0] == 0 {
		t.rest = t.rest[1:]
	}
	if len(t.rest) == 0 || t.err != nil {
		return false
	}
	pair, rest, ended := bytes.Cut(t.rest, zeros[:1])
	key, value, parted := bytes.Cut(pair, []byte{'='})
	if !ended || !parted || !validKey(key) {
		t.err = ErrText
		return false
	}
	t.Key, t.Value, t.rest = key, value, rest
	return true
}

// Err returns the error that ended the iteration, or nil.
func (t *Text) Err() error { return t.err }

// validKey checks a key: a letter, then letters, digits and ".-+@_#", at most 63 octets
// (RFC 7143 §6.1 names these characters for standard-label).
func validKey(key []byte) bool {
	if len(key) == 0 || len(key) > MaxKeyLen || !letter(key[0]) {
		return false
	}
	for _, c := range key {
		if !letter(c) && (c < '0' || c > '9') && bytes.IndexByte([]byte(".-+@_#"), c) < 0 {
			return false
		}
	}
	return true
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// AppendText appends key=value and the NUL octet behind it to b.
func AppendText(b []byte, key, value string) []byte {
	b = append(b, key...)
	b = append(b, '=')
	b = append(b, value...)
	return append(b, 0)
}
