package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	"github.com/stag-rdma/stag/cmd/stag/internal/progress"
	"github.com/stag-rdma/stag/iscsi"
)

// Standard names the standard input or output as an end of a copy.
const Standard = "-"

// CopyOptions say what to copy. Lengths and offsets are octets.
type CopyOptions struct {
	Options
	From, To   string // each a URL, the name of a file, or Standard
	Chunk      int    // octets of one read or write; 0: 256 KiB, or less if a disk permits less
	Depth      int    // most reads, and most writes, in flight
	Skip, Seek int64  // where to begin in From and in To
	Length     int64  // octets to copy; 0: all from Skip on
	Hash       bool   // compute the SHA-256 of the octets

	Progress io.Writer // nil: no progress is shown
	In       *os.File  // standard input
	Out      *os.File  // standard output
}

// defaultChunk is the length of a read or write in octets.
const defaultChunk = 256 << 10

// Copied is the result of a copy.
type Copied struct {
	From string `json:"from"`
	To   string `json:"to"`
	Path string `json:"path"`
	carrier.Fields
	FromPaths   []Path  `json:"from_paths,omitempty"` // at the end, if the URL has several
	ToPaths     []Path  `json:"to_paths,omitempty"`
	Octets      int64   `json:"octets"`
	Seconds     float64 `json:"seconds"`
	MBs         float64 `json:"mb_per_second"` // in 10^6 octets a second
	SHA256      string  `json:"sha256,omitempty"`
	Interrupted bool    `json:"interrupted"`
}

// Print prints a line as dd does, and the hash as sha256sum does.
func (c Copied) Print(w io.Writer) error {
	text := fmt.Sprintf("%d octets copied, %.3f s, %.1f MB/s\n", c.Octets, c.Seconds, c.MBs)
	if c.SHA256 != "" {
		text += fmt.Sprintf("%s  %s\n", c.SHA256, c.From)
	}
	_, err := io.WriteString(w, text)
	return err
}

// name returns the name of an end without secrets.
func name(end string) string {
	if IsURL(end) {
		return public(end)
	}
	return end
}

// Copy copies octets. The Copied is valid even if there is an error.
func Copy(ctx context.Context, o CopyOptions) (Copied, error) {
	r := Copied{From: name(o.From), To: name(o.To), Path: o.Path()}
	if !IsURL(o.From) && !IsURL(o.To) {
		return r, errors.New("neither end is a disk: give a URL (iscsi://...) for one")
	}
	c := copier{o: o}
	if o.Hash {
		c.hash = sha256.New()
	}
	url := o.From
	if !IsURL(url) {
		url = o.To
	}
	o.sessions = count(o.From) + count(o.To)
	begun := time.Now()
	err := o.reach(ctx, url, o.Depth, func(cfg iscsi.Config) error {
		r.Path, r.Fields = o.Path(), o.carried
		err := c.open(ctx, cfg)
		if err == nil {
			begun = time.Now()
			err = c.run(ctx)
			r.FromPaths, r.ToPaths = paths(c.from), paths(c.to)
		}
		return errors.Join(err, c.close(err == nil))
	})
	r.Interrupted = errors.Is(err, ErrInterrupted)
	r.Octets, r.Seconds = c.moved, time.Since(begun).Seconds()
	r.MBs = float64(r.Octets) / 1e6 / max(r.Seconds, 1e-9)
	if c.hash != nil && err == nil {
		r.SHA256 = hex.EncodeToString(c.hash.Sum(nil))
	}
	if err != nil && c.moved > 0 {
		err = fmt.Errorf("%w, after %d octets: %s is not complete", err, c.moved, r.To)
	}
	return r, err
}

// copier is a copy in progress. It reads ahead of its writes, both in order. Chunk n uses
// buffer n modulo Depth.
type copier struct {
	o     CopyOptions
	from  source
	to    sink
	chunk int64
	total int64 // octets to copy; -1: up to the end of the input
	bufs  [][]byte
	hash  hash.Hash // nil: none
	moved int64     // octets that were read and given to the sink
}

// open opens both ends.
func (c *copier) open(ctx context.Context, cfg iscsi.Config) (err error) {
	if c.from, err = c.o.source(ctx, cfg); err != nil {
		return fmt.Errorf("%s: %w", name(c.o.From), err)
	}
	if c.to, err = c.o.sink(ctx, cfg); err != nil {
		return fmt.Errorf("%s: %w", name(c.o.To), err)
	}
	if err := c.measure(); err != nil {
		return err
	}
	if err := c.to.start(); err != nil {
		return c.failed(c.o.To, err)
	}
	for range c.o.Depth {
		c.bufs = append(c.bufs, make([]byte, c.chunk))
	}
	return nil
}

// measure finds how much to copy, and in which steps.
func (c *copier) measure() error {
	block := max(c.from.block(), c.to.block())
	most := min(c.from.most(), c.to.most())
	c.chunk = int64(c.o.Chunk)
	if c.chunk == 0 {
		c.chunk = min(defaultChunk, most/block*block)
	}
	if c.chunk%block != 0 || c.chunk > most {
		return fmt.Errorf("--bs %d: choose a multiple of %d octets, up to %d", c.chunk, block, most)
	}
	size := c.from.size()
	c.total = -1
	if size >= 0 {
		c.total = size - c.o.Skip
	}
	switch n := c.o.Length; {
	case c.total == 0 || size >= 0 && c.total < 0:
		return fmt.Errorf("--skip %d: %s has %d octets", c.o.Skip, name(c.o.From), size)
	case n != 0 && c.total >= 0 && n > c.total:
		return fmt.Errorf("--length %d: %s has %d octets from --skip on", n, name(c.o.From), c.total)
	case n != 0:
		c.total = n
	}
	if room := c.to.size(); room >= 0 && c.total > room-c.o.Seek {
		return fmt.Errorf("%s has %d octets from --seek on, and %d are to be copied: choose a smaller --length", name(c.o.To), max(0, room-c.o.Seek), c.total)
	}
	return c.aligned()
}

// aligned demands that a disk reads and writes whole blocks.
func (c *copier) aligned() error {
	if b := c.from.block(); c.o.Skip%b != 0 || c.total > 0 && c.total%b != 0 {
		return fmt.Errorf("%s has blocks of %d octets: choose multiples for --skip and --length", name(c.o.From), b)
	}
	if b := c.to.block(); c.o.Seek%b != 0 || c.total > 0 && c.total%b != 0 {
		return fmt.Errorf("%s has blocks of %d octets: --seek and the %d octets to copy must be multiples (truncate -s makes a file longer)", name(c.o.To), b, c.total)
	}
	return nil
}

// run copies, and waits until everything is at the sink and on stable storage.
func (c *copier) run(ctx context.Context) error {
	if w := c.o.Progress; w != nil && c.total > 0 {
		m := progress.New(w, "copy", uint64(c.total))
		defer m.End()
		return c.chunks(ctx, func() { m.Reach(uint64(c.moved)) })
	}
	return c.chunks(ctx, func() {})
}

func (c *copier) chunks(ctx context.Context, shown func()) error {
	depth := int64(c.o.Depth)
	var asked, n int64 // chunks whose read has begun, and chunks that the sink has
	for more := true; more && (c.total < 0 || n*c.chunk < c.total); n++ {
		for ; asked < n+depth && (c.total < 0 || asked*c.chunk < c.total); asked++ {
			slot := int(asked % depth)
			if asked >= depth {
				if err := c.to.end(ctx, slot); err != nil {
					return c.failed(c.o.To, err)
				}
			}
			if err := c.from.begin(slot, c.part(asked, slot), c.o.Skip+asked*c.chunk); err != nil {
				return c.failed(c.o.From, err)
			}
		}
		var err error
		if more, err = c.pass(ctx, n, int(n%depth)); err != nil {
			return err
		}
		shown()
	}
	for i := max(0, n-depth); i < n; i++ { // ends in order; a slot that was waited for has nothing to wait for
		if err := c.to.end(ctx, int(i%depth)); err != nil {
			return c.failed(c.o.To, err)
		}
	}
	if err := c.to.sync(ctx); err != nil {
		return c.failed(c.o.To, err)
	}
	return nil
}

// part returns the buffer for chunk n.
func (c *copier) part(n int64, slot int) []byte {
	if c.total < 0 {
		return c.bufs[slot]
	}
	return c.bufs[slot][:min(c.chunk, c.total-n*c.chunk)]
}

// pass gives chunk n to the sink when it has been read. more is false at the end of the
// input.
func (c *copier) pass(ctx context.Context, n int64, slot int) (more bool, err error) {
	want := c.part(n, slot)
	k, err := c.from.end(ctx, slot)
	if err != nil {
		return false, c.failed(c.o.From, err)
	}
	if k < len(want) && c.total >= 0 {
		return false, c.failed(c.o.From, fmt.Errorf("it ends after %d of %d octets", c.moved+int64(k), c.total))
	}
	if k == 0 {
		return false, nil
	}
	if c.hash != nil {
		c.hash.Write(want[:k])
	}
	if err := c.to.begin(slot, want[:k], c.o.Seek+n*c.chunk); err != nil {
		return false, c.failed(c.o.To, err)
	}
	c.moved += int64(k)
	return k == len(want), nil
}

// failed names the end of an error.
func (c *copier) failed(end string, err error) error { return fmt.Errorf("%s: %w", name(end), err) }

// close closes the ends that are open. Without well it cancels what is in flight.
func (c *copier) close(well bool) (err error) {
	if c.from != nil {
		err = c.from.close(well)
	}
	if c.to != nil {
		err = errors.Join(err, c.to.close(well))
	}
	return err
}
