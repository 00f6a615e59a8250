package ping

import (
	"bytes"
	"fmt"
	"strings"
)

// The characters that the data is made of, in their order.
const firstChar, lastChar = 'A', 'z'

// fill makes b the data of ping n: its number, then characters in their order,
// beginning with another one in each ping, and a zero. As much of it as fits.
func fill(b []byte, n uint64) {
	const chars = lastChar - firstChar + 1
	i := copy(b, fmt.Sprintf("rdma-ping-%d: ", n))
	for c := n; i < len(b); i, c = i+1, c+1 {
		b[i] = firstChar + byte(c%chars)
	}
	b[len(b)-1] = 0
}

// compare says where got is not want; both are of the same length.
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

// printable is the data up to its zero. It is the peer's: what a terminal would
// not show becomes a dot.
func printable(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, string(text))
}
