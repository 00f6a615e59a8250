package block

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"
)

// TestCheck: each request that a volume must not see has its errno.
func TestCheck(t *testing.T) {
	whole := Shape{Size: 1 << 20, Block: 512, Discard: 1 << 20, WriteZeroes: 1 << 20}
	bare := Shape{Size: 1 << 20, Block: 4096}
	protected := Shape{Size: 1 << 20, Block: 512, ReadOnly: true, Discard: 1 << 20, WriteZeroes: 1 << 20}
	for _, c := range []struct {
		r    Request
		s    Shape
		want error
	}{
		{Request{Op: Read, Length: 512}, whole, nil},
		{Request{Op: Read, Offset: 1<<20 - 512, Length: 512}, whole, nil},
		{Request{Op: Read, Offset: 1 << 20, Length: 512}, whole, syscall.EINVAL},
		{Request{Op: Write, Offset: 1<<20 - 512, Length: 1024}, whole, syscall.ENOSPC},
		{Request{Op: Write, Offset: math.MaxInt64 - 511, Length: 512}, whole, syscall.ENOSPC},
		{Request{Op: Read, Offset: math.MaxInt64 &^ 511, Length: math.MaxInt64 &^ 511}, whole, syscall.EINVAL},
		{Request{Op: Read, Offset: -512, Length: 512}, whole, syscall.EINVAL},
		{Request{Op: Read, Length: -512}, whole, syscall.EINVAL},
		{Request{Op: Read}, whole, syscall.EINVAL},
		{Request{Op: Read, Length: 511}, whole, syscall.EINVAL},
		{Request{Op: Read, Offset: 512, Length: 4096}, bare, syscall.EINVAL},
		{Request{Op: Discard, Length: 4096}, bare, syscall.EINVAL},
		{Request{Op: WriteZeroes, Length: 4096}, bare, syscall.EINVAL},
		{Request{Op: Discard, Length: 1 << 20}, whole, nil},
		{Request{Op: WriteZeroes, Length: 1 << 20}, whole, nil},
		{Request{Op: Write, Length: 512}, protected, syscall.EPERM},
		{Request{Op: Discard, Length: 512}, protected, syscall.EPERM},
		{Request{Op: WriteZeroes, Length: 512}, protected, syscall.EPERM},
		{Request{Op: Read, Length: 512}, protected, nil},
		{Request{Op: Flush}, protected, nil},
		{Request{Op: WriteZeroes + 1, Length: 512}, whole, syscall.EINVAL},
	} {
		if err := c.r.Check(&c.s); err != c.want {
			t.Errorf("%+v of %+v: %v, want %v", c.r, c.s, err, c.want)
		}
	}
}

func TestErrno(t *testing.T) {
	for _, c := range []struct {
		err  error
		want syscall.Errno
	}{{nil, 0}, {errors.New("lost"), syscall.EIO}, {syscall.ENOSPC, syscall.ENOSPC},
		{&Error{syscall.EPERM, errors.New("protected")}, syscall.EPERM}, {fmt.Errorf("dial: %w", syscall.ECONNREFUSED), syscall.EIO}} {
		if got := Errno(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
