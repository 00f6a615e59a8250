package echo

import (
	"fmt"
	"io"
)

// Print writes the result for people.
func (r Result) Print(w io.Writer) error {
	text := fmt.Sprintf("%d connections, %d octets sent back, %d failed, %.1f s", r.Connections, r.Octets, r.Failed, r.Seconds)
	if r.Successor != 0 {
		text += fmt.Sprintf("; pid %d continues", r.Successor)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
