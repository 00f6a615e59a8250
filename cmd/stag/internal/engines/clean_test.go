package engines

import (
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		"eth1.100 über 日本":       "eth1.100 über 日本",
		"a\tb\nc\rd\x00":         `a\x09b\x0ac\x0dd\x00`,
		"\x1b[2J\x1b]0;t\x07":    `\x1b[2J\x1b]0;t\x07`,
		"\u009b1m":               `\x9b1m`,
		"\x9b1m\xff":             `\x9b1m\xff`,
		"\u202eabc\u2028\u200b":  `\u202eabc\u2028\u200b`,
		"\ufffd":                 `\ufffd`,
		"back\\slash \"quoted\"": "back\\slash \"quoted\"",
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// FuzzClean: Clean leaves nothing that a terminal would interpret.
func FuzzClean(f *testing.F) {
	f.Add("a\x1b[0mb\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		c := Clean(s)
		if !utf8.ValidString(c) {
			t.Errorf("%q: %q is no text", s, c)
		}
		for _, r := range c {
			if r < ' ' || r >= 0x7f && r < 0xa0 || odd(r) {
				t.Errorf("%q: %q holds %q", s, c, r)
			}
		}
		if Clean(c) != c {
			t.Errorf("%q: %q is not clean", s, c)
		}
	})
}
