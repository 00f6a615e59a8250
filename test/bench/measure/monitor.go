package measure

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// monitor says how far a run has come: on a terminal on one line, which goes in
// the end, elsewhere line by line.
type monitor struct {
	w      io.Writer
	screen *os.File // a terminal; nil if w is none
	rounds int
	rows   int
	begin  time.Time
}

func newMonitor(w io.Writer, rounds int, rows []*Row) *monitor {
	m := &monitor{w: w, rounds: rounds, rows: len(rows), begin: time.Now()}
	if f, ok := w.(*os.File); ok && width(f) != 0 {
		m.screen = f
	}
	return m
}

// width is how many characters a line of a terminal has; 0 of anything else.
func width(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	switch {
	case err != nil:
		return 0
	case size.Col == 0:
		return 80 // a terminal that does not know
	}
	return int(size.Col)
}

// at says that row i of a round, both from 0, is being measured.
func (m *monitor) at(round, i int, c Case) {
	line := fmt.Sprintf("round %d of %d, %d of %d%s: %v", round+1, m.rounds, i+1, m.rows, m.left(round*m.rows+i), c)
	if m.screen == nil {
		fmt.Fprintln(m.w, line)
		return
	}
	fmt.Fprintf(m.w, "\r\x1b[K%.*s", width(m.screen)-1, line)
}

// left is how long the rest will take if it goes on as it has so far; nothing
// while little is known.
func (m *monitor) left(done int) string {
	passed := time.Since(m.begin)
	if done == 0 || passed < time.Second {
		return ""
	}
	rest := passed / time.Duration(done) * time.Duration(m.rounds*m.rows-done)
	return fmt.Sprintf(", %v left", rest.Round(time.Second))
}

func (m *monitor) end() {
	if m.screen != nil {
		fmt.Fprint(m.w, "\r\x1b[K")
	}
}
