package daemon

import (
	"fmt"
	"io"
)

// Print writes the result for people.
func (r Result) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d clients, %.1f s\n", r.Clients, r.Seconds)
	return err
}
