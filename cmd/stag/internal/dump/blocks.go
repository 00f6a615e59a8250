package dump

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// blocks writes lines of text or blocks of a pcapng file. After any error its output ends
// with a complete line or block, as far as the operating system allows.
type blocks struct {
	out  *os.File
	buf  bytes.Buffer // octets that are not written yet
	ends []int        // offset in buf of the end of each block
}

// Write implements io.Writer: it adds a part of a block. It does not fail.
func (b *blocks) Write(p []byte) (int, error) { return b.buf.Write(p) }

// end marks the end of a block.
func (b *blocks) end() { b.ends = append(b.ends, b.buf.Len()) }

// flush writes the complete blocks, and returns how many blocks it could not write. If
// a Write ends within a block, and the output is a regular file, flush removes the
// written part of that block.
func (b *blocks) flush() (unwritten int, err error) {
	n, err := b.out.Write(b.buf.Bytes())
	if err != nil {
		whole, part := 0, n
		for whole < len(b.ends) && b.ends[whole] <= n {
			part = n - b.ends[whole]
			whole++
		}
		unwritten = len(b.ends) - whole
		err = errors.Join(err, b.takeBack(int64(part)))
	}
	b.buf.Reset()
	b.ends = b.ends[:0]
	return unwritten, err
}

// takeBack removes the last n octets of a regular file.
func (b *blocks) takeBack(n int64) error {
	info, err := b.out.Stat()
	if n == 0 || err != nil || !info.Mode().IsRegular() {
		return err
	}
	at, err := b.out.Seek(0, io.SeekCurrent)
	if err == nil {
		err = b.out.Truncate(at - n)
	}
	if err == nil {
		_, err = b.out.Seek(at-n, io.SeekStart)
	}
	return err
}
