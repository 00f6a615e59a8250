package show

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
)

// TestWatchWrites: an answer of a watch is one line of JSON, or text below its time. On a terminal it begins at the
// first line of the screen and clears the rest.
func TestWatchWrites(t *testing.T) {
	for name, c := range map[string]struct {
		json, terminal bool
		begins, ends   string
	}{
		"JSON":     {true, false, `{"time":"2026-01-02T03:04:05Z","rows":[{"pid":812,`, "}]}\n"},
		"text":     {false, false, "--- 2026-01-02T03:04:05Z ---\ncqn 1 ", "comm storage\n"},
		"terminal": {false, true, home + "Every 0s: stag show cqs   2026-01-02 03:04:05" + clearLine + "\n" + clearLine + "\ncqn 1 ", "comm storage" + clearLine + "\n" + clearRest},
	} {
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		w := watcher{Options: Options{Subject: "cqs", JSON: c.json, Out: out}, terminal: c.terminal, at: began}
		l, err := w.list(engines.Answer{Sources: fixture()})
		if err == nil {
			err = w.write(l, nil)
		}
		text, readErr := os.ReadFile(out.Name())
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), c.begins) || !strings.HasSuffix(string(text), c.ends) {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// TestRowsOf: a line takes as many rows of the terminal as its width needs. A tab counts as eight columns.
func TestRowsOf(t *testing.T) {
	for line, want := range map[string]int{"": 1, "12345678": 1, "123456789": 2, "\t1": 2, "é2345678": 1} {
		if got := rowsOf(line, 8); got != want {
			t.Errorf("%q: %d rows, want %d", line, got, want)
		}
	}
}

// TestMissing: an engine that does not answer is an error only if the user has named its process.
func TestMissing(t *testing.T) {
	silent := engines.Answer{Failed: []engines.Failure{{Err: errors.New("no answer")}}}
	for _, c := range []struct {
		pid  int
		a    engines.Answer
		want error
	}{{0, silent, nil}, {7, engines.Answer{}, nil}, {7, silent, ErrMissing}} {
		if err := (Options{PID: c.pid}).missing(c.a); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("pid %d, %d failed: %v, want %v", c.pid, len(c.a.Failed), err, c.want)
		}
	}
}
