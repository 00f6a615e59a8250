package show

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Shortest is the least time between two answers.
const Shortest = 100 * time.Millisecond

// watcher has the state that one answer needs from the previous answer.
type watcher struct {
	Options
	terminal bool
	said     []string // notes of the previous answer
	values   map[series]uint64
	at       time.Time // time of the previous answer
}

// watched is one answer in JSON, which is printed in one line.
type watched struct {
	Time time.Time `json:"time"`
	Rows []flat    `json:"rows"`
}

// watch prints answers until ctx ends, which is no error.
func watch(ctx context.Context, o Options) error {
	w := &watcher{Options: o, terminal: !o.JSON && isTerminal(o.Out)}
	tick := time.NewTicker(o.Watch)
	defer tick.Stop()
	for {
		err := w.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (w *watcher) once(ctx context.Context) error {
	a, err := ask(ctx, w.Options)
	if err != nil {
		return err
	}
	l, err := w.list(a)
	if err != nil {
		return err
	}
	now := time.Now()
	if counters, ok := l.(counterList); ok {
		w.values = counters.rates(w.values, now.Sub(w.at))
	}
	w.at = now
	lines := w.notes(a, l)
	if err := w.write(l, lines); err != nil {
		return err
	}
	if w.terminal || !slices.Equal(lines, w.said) {
		notes(w.Notes, lines)
	}
	w.said = lines
	return w.missing(a)
}

// write prints an answer with one Write. On a terminal it overwrites the previous answer.
func (w *watcher) write(l list, follow []string) error {
	var b bytes.Buffer
	switch {
	case w.JSON:
		writeJSON(&b, watched{w.at, flatten(l)}, "")
	case w.terminal:
		fmt.Fprintf(&b, "Every %v: stag show %s   %s\n\n", w.Watch, w.Subject, w.at.Format(time.DateTime))
		w.text(&b, l)
		b = *redraw(b.String(), follow, w.Out)
	default:
		fmt.Fprintf(&b, "--- %s ---\n", w.at.Format(time.RFC3339Nano))
		w.text(&b, l)
	}
	_, err := w.Out.Write(b.Bytes())
	return err
}

// Control sequences for a terminal (ECMA-48): move to the first column of the first
// line; clear the rest of the line; clear the rest of the screen.
const (
	home      = "\x1b[H"
	clearLine = "\x1b[K"
	clearRest = "\x1b[J"
)

// redraw returns text with the control sequences that overwrite the previous text. It
// leaves out the end of text if the terminal has no room for text and the lines in
// follow below it.
func redraw(text string, follow []string, f *os.File) *bytes.Buffer {
	b := bytes.NewBufferString(home)
	for _, line := range fit(strings.Split(strings.TrimSuffix(text, "\n"), "\n"), follow, f) {
		b.WriteString(line + clearLine + "\n")
	}
	b.WriteString(clearRest)
	return b
}

// fit returns the first lines for which the terminal has room. If lines are left out, the
// last line says how many. Two rows stay free: one for that line, and one for the cursor.
func fit(lines, follow []string, f *os.File) []string {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Row < 6 || size.Col == 0 {
		return lines
	}
	room, columns := int(size.Row)-2, int(size.Col)
	for _, line := range follow {
		room -= rowsOf(notePrefix+line, columns)
	}
	for i, line := range lines {
		if room -= rowsOf(line, columns); room < 0 {
			return append(lines[:i:i], fmt.Sprintf("... and %d lines for which the terminal is too small", len(lines)-i))
		}
	}
	return lines
}

// rowsOf returns how many rows of the terminal a line needs. The line may begin with a
// tab.
func rowsOf(line string, columns int) int {
	width := utf8.RuneCountInString(line) + 7*strings.Count(line, "\t")
	return 1 + max(0, width-1)/columns
}

// isTerminal reports whether f is a terminal that can be redrawn.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("TERM") != "dumb"
}
