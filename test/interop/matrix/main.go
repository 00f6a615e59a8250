// Command matrix reads the output of "go test -json" for package interop and prints the
// matrix while the tests run. Each row has a line with the peer program, the
// operations, the result and the time. The output of a failed row follows its line. Its last
// lines stand again at the end of the run. The exit code is 0 only if there was at least one
// row and all rows passed.
//
//	go test -tags interop -json ./test/interop | go run ./test/interop/matrix
package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	// Ctrl-C ends the tests. matrix ignores the signal, and prints the rows that ran.
	signal.Ignore(os.Interrupt)
	if err := show(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

// show prints the matrix from the events in r. It returns an error if a row failed or
// is missing.
func show(r io.Reader, w io.Writer) error {
	m := newMatrix(w)
	if err := m.follow(r); err != nil {
		return err
	}
	return m.sum()
}
