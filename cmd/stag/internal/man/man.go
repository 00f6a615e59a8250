// Package man writes the manual pages of a command from what its help says.
package man

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
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
	if err := tree(root, dir, header); err != nil {
		return fmt.Errorf("write the pages into %s: %w", dir, err)
	}
	return nil
}

// tables are the lines of a text that are indented. The generator reads Markdown,
// and leaves lines as they are from four blanks on.
var tables = regexp.MustCompile(`(?m)^ +\S`)

// tree writes the pages of cmd and of what is below it.
func tree(cmd *cobra.Command, dir string, header doc.GenManHeader) error {
	for _, below := range cmd.Commands() {
		if !below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := tree(below, dir, header); err != nil {
			return err
		}
	}
	cmd.Long = tables.ReplaceAllString(cmd.Long, "    $0")
	var page strings.Builder
	h := header // GenMan writes to it
	if err := doc.GenMan(cmd, &h, &page); err != nil {
		return err
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + "." + header.Section
	return os.WriteFile(filepath.Join(dir, name), []byte(complete(page.String())), 0o644)
}

// exits is a section that the generator does not know. It is the same for all
// commands.
const exits = `.SH EXIT STATUS
.TP
\fB0\fP
All went well.
.TP
\fB1\fP
Something failed, or was interrupted: the last line on standard error says what.
.TP
\fB2\fP
The command line is wrong. Nothing was done.


`

// complete gives a page the sections that the manual pages of a system have.
func complete(page string) string {
	page = strings.Replace(page, "\n.SH EXAMPLE\n", "\n.SH EXAMPLES\n", 1)
	if at := strings.Index(page, ".SH EXAMPLES\n"); at >= 0 {
		return page[:at] + exits + page[at:]
	}
	return page + exits
}
