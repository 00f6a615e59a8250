// Command matrix reads what "go test -json" writes about package interop and
// prints the matrix as it comes about: a line for each row, with the program at
// the other end, what was done, the result and the time. What a row that failed
// had to say comes below it. The exit code is 0 only if there were rows, and all
// of them passed.
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
	// Ctrl-C ends the tests; what has been done is told all the same.
	signal.Ignore(os.Interrupt)
	if err := show(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

// show prints the matrix that r tells of, and says what is wrong with it.
func show(r io.Reader, w io.Writer) error {
	m := newMatrix(w)
	if err := m.follow(r); err != nil {
		return err
	}
	return m.sum()
}
