package ping

import (
	"bytes"
	"fmt"
	"strings"
)

// The data repeats the characters from firstChar to lastChar.
const firstChar, lastChar = 'A', 'z'

// fill fills b with the data of ping n: the number of the ping, then the characters in
// their order, and a zero. Each ping starts with another character. Data that does not
// fit into b is left out.
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

// printable returns the data up to the first zero. The data comes from the peer, so
// printable replaces characters that a terminal would not show by dots.
func printable(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, string(text))
}
