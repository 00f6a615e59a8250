// Package man writes the manual pages of a command: from its help, and from what its
// annotation More adds.
package man

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/version"
)

// section of the manual: commands for administrators.
const section = "8"

// More is the annotation of a command with text that its manual page has after the
// text of --help.
const More = "manual"

// Write writes a page for root and for each command below it that is not hidden into
// dir. It makes dir if it does not exist. The pages have the version v and its month.
func Write(root *cobra.Command, dir string, v version.Info) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory for the pages: %w", err)
	}
	at, err := month(v)
	if err != nil {
		return err
	}
	if err := tree(root, dir, at, v); err != nil {
		return fmt.Errorf("write the pages into %s: %w", dir, err)
	}
	return nil
}

// month returns the time of the commit that v was built from. If v has no such time,
// month returns SOURCE_DATE_EPOCH (reproducible-builds.org). If that is not set, month
// returns the present time.
func month(v version.Info) (time.Time, error) {
	if v.Time != "" {
		at, err := time.Parse(time.RFC3339, v.Time)
		if err != nil {
			return at, fmt.Errorf("the build's time: %w", err)
		}
		return at, nil
	}
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Now(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %q is no number of seconds", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// below returns the commands of cmd that have pages.
func below(cmd *cobra.Command) (list []*cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && !c.IsAdditionalHelpTopicCommand() {
			list = append(list, c)
		}
	}
	return list
}

// tree writes the pages of cmd and of all commands below it.
func tree(cmd *cobra.Command, dir string, at time.Time, v version.Info) error {
	for _, c := range below(cmd) {
		if err := tree(c, dir, at, v); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, Name(cmd)+"."+section), []byte(page(cmd, at, v)), 0o644)
}

// Name returns the name of a command's page, such as stag-perf-write_bw.
func Name(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// page returns the manual page of a command, with the sections of man-pages(7) in their
// order.
func page(cmd *cobra.Command, at time.Time, v version.Info) string {
	var b roff
	b.line(`.TH "%s" "%s" "%s" "stag %s" "%s manual"`,
		strings.ToUpper(Name(cmd)), section, at.Format("Jan 2006"), v.Version, cmd.Root().Name())
	b.line(".nh")
	b.line(".ad l")
	b.line(".SH NAME")
	b.text(Name(cmd) + " - " + cmd.Short)
	b.line(".SH SYNOPSIS")
	b.line("%s", synopsis(cmd))
	b.line(".SH DESCRIPTION")
	b.paragraphs(cmd.Long)
	if more := cmd.Annotations[More]; more != "" {
		b.line(".PP")
		b.paragraphs(more)
	}
	b.commands(below(cmd))
	b.options(cmd)
	b.line("%s", exits)
	more := moreAbout(cmd)
	b.notes("ENVIRONMENT", environment, more.environment)
	b.notes("FILES", files, more.files)
	b.line(".SH EXAMPLES")
	b.verbatim(cmd.Example)
	b.related(cmd, more.related)
	return b.String()
}

// exits is the section EXIT STATUS, which is the same for all commands.
const exits = `.SH EXIT STATUS
.TP
\fB0\fP
All went well.
.TP
\fB1\fP
Something failed, or was interrupted: the last line on standard error says what.
.TP
\fB2\fP
The command line is wrong. Nothing was done.`
