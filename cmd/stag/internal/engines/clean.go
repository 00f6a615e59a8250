package engines

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes the text of another process safe for one line of a terminal. It escapes
// characters that move the cursor, end the line or change the direction of writing.
func Clean(s string) string {
	if strings.IndexFunc(s, odd) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !odd(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// odd reports whether a terminal would interpret r instead of showing it.
func odd(r rune) bool {
	return r == utf8.RuneError || r != ' ' && !unicode.IsGraphic(r) || unicode.In(r, unicode.Zl, unicode.Zp)
}
