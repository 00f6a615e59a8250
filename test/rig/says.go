package rig

import (
	"errors"
	"strings"
	"testing"
)

// Says fails the test unless err is an error of the kind is, and its text is one line
// that contains all words. If is is nil, any error is right.
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
