// Package man writes the manual pages of a command from what its help says.
package man

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/stag-rdma/stag/cmd/stag/internal/version"
)

// Write puts a page for root, and one for each command below it that is not
// hidden, into dir, which it makes if need be. The pages name v and its month.
func Write(root *cobra.Command, dir string, v version.Info) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory for the pages: %w", err)
	}
	header := doc.GenManHeader{
		Section: "8", // it is for whoever administers the machine
		Source:  "stag " + v.Version,
		Manual:  root.Name() + " manual",
	}
	if v.Time != "" {
		at, err := time.Parse(time.RFC3339, v.Time)
		if err != nil {
			return fmt.Errorf("the build's time: %w", err)
		}
		header.Date = &at
	}
	root.DisableAutoGenTag = true // a page that is made twice is the same
	err := doc.GenManTreeFromOpts(root, doc.GenManTreeOptions{
		Path:             dir,
		CommandSeparator: "-",
		Header:           &header,
	})
	if err != nil {
		return fmt.Errorf("write the pages into %s: %w", dir, err)
	}
	return nil
}
