package report

import (
	"fmt"
	"strings"
)

// Words joins the words that are not empty, with blanks.
func Words(list ...string) string {
	var b strings.Builder
	for _, w := range list {
		if w != "" && b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w)
	}
	return b.String()
}

// Word returns a name and its value, or "" if the value is zero.
func Word[T comparable](name string, value T) string {
	var none T
	if value == none {
		return ""
	}
	return fmt.Sprint(name, value)
}

// when returns the word if yes is true, and "" otherwise.
func when(yes bool, word string) string { return either(yes, word, "") }

func either(yes bool, word, other string) string {
	if yes {
		return word
	}
	return other
}
