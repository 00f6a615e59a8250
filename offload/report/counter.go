package report

import (
	"reflect"
	"strings"
	"unicode"
)

// Counter is a count that only grows.
type Counter struct {
	Device string `json:"device,omitempty"` // name of the device; "" for the whole adapter, or if the enclosing object names the device
	Layer  string `json:"layer"`            // one of steer, placeholder, engine, wire, tcp, xsk, xsk_kernel, rdmap, tpt, group, verbs, capture, move, move_cause, move_frozen, iscsi_initiator, iscsi_target, and the last two with _reason and _latency
	Name   string `json:"name"`             // name in snake_case, as in docs/counters.md
	Value  uint64 `json:"value"`
}

// Fields returns the exported fields of type uint64 of the struct v, in their order.
// The names are those in docs/counters.md: the field DupAcksIn becomes dup_acks_in.
func Fields(layer string, v any) []Counter {
	var list []Counter
	s := reflect.ValueOf(v)
	for i := range s.NumField() {
		f := s.Type().Field(i)
		if f.IsExported() && f.Type.Kind() == reflect.Uint64 {
			list = append(list, Counter{Layer: layer, Name: Snake(f.Name), Value: s.Field(i).Uint()})
		}
	}
	return list
}

// Snake returns a Go name or a text in snake_case. RxOctets becomes rx_octets, OldAcks
// becomes old_acks, DupSACKs becomes dup_sacks, and "bad checksum" becomes
// bad_checksum.
func Snake(name string) string {
	var b strings.Builder
	rs := []rune(name)
	for i, r := range rs {
		switch {
		case r == ' ' || r == '-':
			b.WriteByte('_')
		case unicode.IsUpper(r):
			if i > 0 && begins(rs, i) {
				b.WriteByte('_')
			}
			b.WriteRune(unicode.ToLower(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// begins reports whether the capital at i begins a word. A capital begins a word if it
// follows a small letter. It also begins a word if it is the last of several capitals,
// and more than a plural's s follows.
func begins(rs []rune, i int) bool {
	if unicode.IsLower(rs[i-1]) || unicode.IsDigit(rs[i-1]) {
		return true
	}
	if i+1 == len(rs) || !unicode.IsLower(rs[i+1]) {
		return false
	}
	plural := rs[i+1] == 's' && (i+2 == len(rs) || unicode.IsUpper(rs[i+2]))
	return !plural
}
