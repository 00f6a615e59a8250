package report

import (
	"reflect"
	"strings"
	"unicode"
)

// Counter is something that was counted, and that only grows.
type Counter struct {
	Device string `json:"device,omitempty"` // "" for the whole adapter, or where the object around it says so
	Layer  string `json:"layer"`            // steer, placeholder, engine, wire, tcp, xsk, xsk_kernel, rdmap, tpt, verbs, capture
	Name   string `json:"name"`             // in snake_case, as docs/counters.md has it
	Value  uint64 `json:"value"`
}

// Fields returns the exported fields of type uint64 of a struct, in their order,
// under the names that docs/counters.md has: DupAcksIn is dup_acks_in.
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

// Snake returns a name of Go, or words, in snake_case: RxOctets is rx_octets,
// OldAcks old_acks, DupSACKs dup_sacks, and "bad checksum" bad_checksum.
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

// begins reports whether the capital at i begins a word: it follows a small
// letter, or ends a row of capitals and more than a plural's s follows.
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
