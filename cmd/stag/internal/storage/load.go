package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	"github.com/stag-rdma/stag/iscsi"
)

// LoadOptions say what stag iscsi perf does to a disk.
type LoadOptions struct {
	Options
	URL    string
	Write  bool          // write instead of reading: the contents of the disk are lost
	Random bool          // at random places instead of in order
	Blocks int           // logical blocks of a command
	Depth  int           // commands in flight
	Time   time.Duration // 0: until an interrupt

	Out io.Writer // gets the lines of iscsi-perf; nil: none
	// Current gets a line of iscsi-perf every second, which overwrites the one before; nil:
	// none.
	Current io.Writer
}

// Load is the result of a measurement.
type Load struct {
	URL  string `json:"url"`
	Path string `json:"path"`
	carrier.Fields
	Operation    string   `json:"operation"` // read or write
	Random       bool     `json:"random"`
	Depth        int      `json:"depth"`
	Octets       int      `json:"octets"`          // of one command
	Paths        []Path   `json:"paths,omitempty"` // at the end, if the URL has several
	HeaderDigest bool     `json:"header_digest"`
	DataDigest   bool     `json:"data_digest"`
	Seconds      float64  `json:"seconds"`
	Commands     uint64   `json:"commands"`
	IOPS         float64  `json:"iops"`
	MiBs         float64  `json:"mib_per_second"` // iscsi-perf calls this unit MB/s
	Latency      *Latency `json:"latency_us,omitempty"`
	CPU          CPU      `json:"cpu"`
	Interrupted  bool     `json:"interrupted"`
}

// Latency is how long commands took, from the post to the completion, in microseconds.
// Percentiles are exact to three digits.
type Latency struct {
	Min  float64 `json:"min"`
	Avg  float64 `json:"avg"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

// Perf measures a disk. The Load is valid even if there is an error.
func Perf(ctx context.Context, o LoadOptions) (r Load, err error) {
	r = Load{URL: public(o.URL), Path: o.Path(), Operation: "read", Random: o.Random, Depth: o.Depth}
	if o.Write {
		r.Operation = "write"
	}
	err = o.reach(ctx, o.URL, o.Depth, func(cfg iscsi.Config) (err error) {
		r.Path, r.Fields = o.Path(), o.carried
		op := iscsi.Read
		if o.Write {
			op = iscsi.Write
		}
		d, err := openDisk(ctx, o.URL, cfg, o.Depth, op)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.close(false)) }()
		r.HeaderDigest, r.DataDigest = digests(d.Disk)
		defer func() { r.Paths = pathsOf(d.Disk) }()
		r.Octets = o.Blocks * d.BlockSize()
		if err := o.fits(d, int64(r.Octets)); err != nil {
			return err
		}
		if err := o.announce(d); err != nil {
			return err
		}
		return o.measure(ctx, d, &r)
	})
	if err == nil && o.Time > 0 && r.Interrupted {
		err = fmt.Errorf("%w after %.1f of %.1f s", ErrInterrupted, r.Seconds, o.Time.Seconds())
	}
	return r, err
}

// fits demands that the disk takes such commands.
func (o *LoadOptions) fits(d *disk, octets int64) error {
	if most := min(d.limit, d.Size()); octets > most {
		return fmt.Errorf("-b %d: the disk takes up to %d blocks of %d octets", o.Blocks, most/d.block(), d.block())
	}
	return nil
}
