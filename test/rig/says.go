package rig

import (
	"errors"
	"strings"
	"testing"
)

// Says fails the test unless errors.Is(err, is) is true and the text of err is one line
// that contains all words. If the argument is is nil, the kind of the error does not
// matter.
func Says(t testing.TB, err, is error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error; want one that says %q", words)
		return
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("error %q is not %q", err, is)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
	if strings.ContainsAny(err.Error(), "\n\r\x1b") {
		t.Errorf("error %q is not one line of text", err)
	}
}
