package storage

import "testing"

// A URL of iSER keeps its scheme, its user and its arguments, and hides its secret.
func TestURLs(t *testing.T) {
	for _, scheme := range []string{"iscsi://", "iser://"} {
		full := scheme + "alice%secret-secret@192.0.2.1/iqn.2026-01.test:t/3?auth=md5"
		if !IsURL(full) || !HasSecret(full) || HasSecret(scheme+"alice@192.0.2.1") {
			t.Errorf("%s: is it a URL: %v, has it a secret: %v", full, IsURL(full), HasSecret(full))
		}
		if got, want := public(full), scheme+"192.0.2.1:3260/iqn.2026-01.test:t/3"; got != want {
			t.Errorf("public: %s, want %s", got, want)
		}
		if got, want := at(full, "192.0.2.9:1", "iqn.x", 7), scheme+"alice%secret-secret@192.0.2.9:1/iqn.x/7?auth=md5"; got != want {
			t.Errorf("at: %s, want %s", got, want)
		}
	}
}
