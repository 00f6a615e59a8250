package ping

import (
	"bytes"
	"fmt"
	"strings"
)

// The characters of the data, in their order.
const firstChar, lastChar = 'A', 'z'

// fill fills b with the data of ping n, as far as it fits: its number, then the
// characters in their order, starting with another one in each ping, and a zero.
func fill(b []byte, n uint64) {
	const chars = lastChar - firstChar + 1
	i := copy(b, fmt.Sprintf("rdma-ping-%d: ", n))
	for c := n; i < len(b); i, c = i+1, c+1 {
		b[i] = firstChar + byte(c%chars)
	}
	b[len(b)-1] = 0
}

// compare returns an error that names the first difference. got and want have the same
// length.
func compare(got, want []byte, n uint64) error {
	if bytes.Equal(got, want) {
		return nil
	}
	i := 0
	for got[i] == want[i] {
		i++
	}
	return fmt.Errorf("octet %d of the data of ping %d is %#02x, want %#02x", i, n, got[i], want[i])
}

// printable returns the data up to its zero. The data comes from the peer, so a
// character that a terminal would not show becomes a dot.
func printable(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, string(text))
}
