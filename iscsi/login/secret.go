package login

import "fmt"

// Secret holds the octets of a CHAP secret. No verb of fmt and no encoder of text or JSON
// shows them.
type Secret []byte

const hidden = "(secret)"

// Format writes a constant for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// MarshalText returns a constant.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
