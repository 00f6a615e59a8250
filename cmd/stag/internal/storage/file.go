package storage

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// file is a file as an end of a copy. A nil File is not open yet.
type file struct {
	*os.File
	length int64 // -1: not known
	slow   bool  // a read or write may wait without end, as that of a pipe
}

func (f *file) size() int64  { return f.length }
func (f *file) block() int64 { return 1 }
func (f *file) most() int64  { return unlimited }

func (f *file) close(bool) error { return f.Close() }

// measure finds the length of a file or block device.
func (f *file) measure() error {
	info, err := f.Stat()
	if err != nil {
		return reason(err)
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return errors.New("it is a directory: choose a file")
	case mode.IsRegular():
		f.length = info.Size()
	case mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0:
		if f.length, err = f.Seek(0, io.SeekEnd); err != nil {
			return reason(err)
		}
		_, err = f.Seek(0, io.SeekStart)
		return err
	default:
		f.slow = true
	}
	return nil
}

// within runs an operation. If it is one that may wait without end, it also returns when
// ctx ends; the process must end then, because the operation goes on.
func (f *file) within(ctx context.Context, do func() (int, error)) (n int, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if !f.slow {
		return do()
	}
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		n, err := do()
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return r.n, r.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// fileSource reads a file in order.
type fileSource struct {
	*file
	want [][]byte // by slot
}

// skip goes past the first n octets.
func (s *fileSource) skip(n int64) error {
	if n == 0 {
		return nil
	}
	if _, err := s.Seek(n, io.SeekCurrent); !errors.Is(err, unix.ESPIPE) {
		return err
	}
	_, err := io.CopyN(io.Discard, s.File, n)
	return err
}

func (s *fileSource) begin(slot int, p []byte, _ int64) error {
	s.want[slot] = p
	return nil
}

func (s *fileSource) end(ctx context.Context, slot int) (int, error) {
	n, err := s.within(ctx, func() (int, error) { return io.ReadFull(s.File, s.want[slot]) })
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, nil
	}
	return n, reason(err)
}

// fileSink writes a file in order.
type fileSink struct {
	*file
	name string // file to open; "": it is open
	from int64  // octets at the beginning that stay
}

// start makes the file, or cuts it to its length.
func (s *fileSink) start() error {
	if s.name == "" {
		return nil
	}
	flags := os.O_WRONLY | os.O_CREATE
	if s.from == 0 {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(s.name, flags, 0o666)
	if err != nil {
		return reason(err)
	}
	s.File = f
	if s.from != 0 {
		_, err = f.Seek(s.from, io.SeekStart)
	}
	return reason(err)
}

func (s *fileSink) close(bool) error {
	if s.File == nil {
		return nil
	}
	return s.Close()
}

func (s *fileSink) begin(_ int, p []byte, _ int64) error {
	_, err := s.Write(p)
	return reason(err)
}

func (s *fileSink) end(ctx context.Context, _ int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// sync makes the octets stable. A pipe and a terminal have nothing to make stable.
func (s *fileSink) sync(context.Context) error {
	if err := s.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.ENOTSUP) {
		return reason(err)
	}
	return nil
}
