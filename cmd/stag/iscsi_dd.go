package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/dump"
	"github.com/stag-rdma/stag/cmd/stag/internal/storage"
)

// These limit options of a copy.
const (
	copyDepth     = 16
	mostCopyDepth = 1024
	mostChunk     = 1 << 30 // octets of all buffers
)

// size is a number of octets as the value of a flag.
type size int64

func (s *size) String() string { return strconv.FormatInt(int64(*s), 10) }
func (s *size) Type() string   { return "size" }

func (s *size) Set(word string) error {
	n, err := storage.ParseSize(word)
	*s = size(n)
	return err
}

// copyFlags are the flags of a copy.
type copyFlags struct {
	iscsiFlags
	storage.CopyOptions
	bs, skip, seek, length size
	progress               bool
}

func iscsiCopy() *cobra.Command {
	var o copyFlags
	cmd := &cobra.Command{
		Use:   "dd FROM TO",
		Short: "Copy between disks and files",
		Long: `Copies a disk or a file to a disk or a file. FROM and TO are URLs, names of files,
or - for the standard input or output. Several reads and writes are in flight, and
the copy ends when everything is on stable storage. A SIZE is a number of octets, or
a number with K, M, G or T (powers of 1024).`,
		Annotations: manual(iscsiCopyManual),
		Example: `  stag iscsi dd disk.img iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1
  stag iscsi dd iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1 copy.img --hash
  stag iscsi dd iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1 - --length 1M | hd`,
		Args: exactly(2, "what to copy, and where to"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.From, o.To = args[0], args[1]
			if err := o.check(cmd); err != nil {
				return usageError{fmt.Errorf("%s: %w", commandName(cmd), err)}
			}
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	o.initiator(f)
	o.recovery(f)
	f.Var(&o.bs, "bs", "octets of one read or write (default 256K, or less if a disk permits less)")
	f.IntVar(&o.Depth, "depth", copyDepth, "most reads, and most writes, in flight")
	f.Var(&o.skip, "skip", "octets to skip at the beginning of FROM")
	f.Var(&o.seek, "seek", "octets to leave as they are at the beginning of TO")
	f.Var(&o.length, "length", "octets to copy (default all)")
	f.BoolVar(&o.Hash, "hash", false, "print the SHA-256 of what was copied")
	f.BoolVar(&o.progress, "progress", false, "show the progress also if standard error is no terminal")
	return cmd
}

// check finds mistakes on the command line.
func (o *copyFlags) check(cmd *cobra.Command) error {
	if err := o.iscsiFlags.check(); err != nil {
		return err
	}
	for _, end := range []string{o.From, o.To} {
		if !storage.IsURL(end) {
			continue
		}
		if err := checkURL(cmd, end, true); err != nil {
			return err
		}
	}
	switch f := cmd.Flags(); {
	case !storage.IsURL(o.From) && !storage.IsURL(o.To):
		return errors.New("neither end is a disk: give a URL (iscsi://...) for one")
	case o.Depth < 1 || o.Depth > mostCopyDepth:
		return fmt.Errorf("--depth %d: choose 1 to %d", o.Depth, mostCopyDepth)
	case f.Changed("bs") && o.bs == 0:
		return errors.New("--bs 0: choose a multiple of the disk's block size")
	case int64(o.bs) > mostChunk/int64(o.Depth):
		return fmt.Errorf("--bs %d and --depth %d: choose less than 1 GiB together", o.bs, o.Depth)
	case f.Changed("length") && o.length == 0:
		return errors.New("--length 0: choose more, or leave it out to copy all")
	case o.json && o.To == storage.Standard:
		return errors.New("--json prints to the standard output: choose another TO")
	}
	return nil
}

func (o *copyFlags) run(cmd *cobra.Command) error {
	if err := o.start(cmd.Context()); err != nil {
		return iscsiFailed(cmd, err)
	}
	c := o.CopyOptions
	c.Options, c.Chunk, c.Skip, c.Seek, c.Length = o.iscsiFlags.Options, int(o.bs), int64(o.skip), int64(o.seek), int64(o.length)
	c.In, c.Out = os.Stdin, os.Stdout
	if o.progress || dump.IsTerminal(os.Stderr) {
		c.Progress = os.Stderr
	}
	r, err := storage.Copy(cmd.Context(), c)
	if err != nil {
		return iscsiFailed(cmd, err)
	}
	var out io.Writer = cmd.OutOrStdout()
	if o.To == storage.Standard {
		out = cmd.ErrOrStderr()
	}
	return o.show(cmd, out, r)
}
