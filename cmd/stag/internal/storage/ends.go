package storage

import (
	"context"
	"errors"
	"math"
	"os"

	"github.com/stag-rdma/stag/iscsi"
)

// end is an end of a copy.
type end interface {
	size() int64  // in octets; -1: not known
	block() int64 // offsets and lengths are multiples of it
	most() int64  // octets of one read or write
	close(well bool) error
}

// source is where a copy reads. Each slot has one read in flight at most.
type source interface {
	end
	begin(slot int, p []byte, off int64) error
	// end waits for the read of a slot. It returns less than len(p) only at the end of
	// the input.
	end(ctx context.Context, slot int) (int, error)
}

// sink is where a copy writes. Each slot has one write in flight at most.
type sink interface {
	end
	// start makes the sink ready. Nothing has touched the octets before.
	start() error
	begin(slot int, p []byte, off int64) error
	// end waits for the write of a slot, if there is one.
	end(ctx context.Context, slot int) error
	sync(ctx context.Context) error
}

// source opens From.
func (o *CopyOptions) source(ctx context.Context, cfg iscsi.Config) (source, error) {
	if IsURL(o.From) {
		if err := o.setSecrets(o.From); err != nil {
			return nil, err
		}
		d, err := openDisk(ctx, o.From, cfg, o.Depth, iscsi.Read)
		if err != nil {
			return nil, err
		}
		return diskSource{d}, nil
	}
	f := &file{File: o.In, length: -1}
	if o.From != Standard {
		opened, err := os.Open(o.From)
		if err != nil {
			return nil, reason(err)
		}
		f.File = opened
	}
	if err := f.measure(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s := &fileSource{file: f, want: make([][]byte, o.Depth)}
	if err := s.skip(o.Skip); err != nil {
		return nil, errors.Join(reason(err), f.Close())
	}
	return s, nil
}

// sink opens To.
func (o *CopyOptions) sink(ctx context.Context, cfg iscsi.Config) (sink, error) {
	if IsURL(o.To) {
		if err := o.setSecrets(o.To); err != nil {
			return nil, err
		}
		d, err := openDisk(ctx, o.To, cfg, o.Depth, iscsi.Write)
		if err != nil {
			return nil, err
		}
		return diskSink{d}, nil
	}
	if o.To == Standard {
		return &fileSink{file: &file{File: o.Out, length: -1, slow: true}}, nil
	}
	return &fileSink{file: &file{length: -1}, name: o.To, from: o.Seek}, nil
}

// reason returns the cause of an error of a file, whose name the caller adds.
func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// unlimited is the most octets of one read or write of a file.
const unlimited = math.MaxInt32 &^ 4095
