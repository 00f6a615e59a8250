package measure

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// monitor prints the progress of a run. On a terminal it uses one line, which it clears
// at the end. Otherwise it prints one line for each row.
type monitor struct {
	w      io.Writer
	screen *os.File // the terminal, or nil if w is no terminal
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

// width returns the number of columns of a terminal. It returns 0 if f is no terminal.
func width(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	switch {
	case err != nil:
		return 0
	case size.Col == 0:
		return 80 // this terminal does not report its width
	}
	return int(size.Col)
}

// at prints that row i of a round is being measured. round and i begin at 0.
func (m *monitor) at(round, i int, c Case) {
	line := fmt.Sprintf("round %d of %d, %d of %d%s: %v", round+1, m.rounds, i+1, m.rows, m.left(round*m.rows+i), c)
	if m.screen == nil {
		fmt.Fprintln(m.w, line)
		return
	}
	fmt.Fprintf(m.w, "\r\x1b[K%.*s", width(m.screen)-1, line)
}

// left estimates the remaining time from the time passed so far. It returns "" if too
// little has been measured.
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
