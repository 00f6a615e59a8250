package dump

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// blocks writes lines, or blocks of a file, so that what it writes ends with a
// whole one whatever happens, as far as the operating system lets it.
type blocks struct {
	out  *os.File
	buf  bytes.Buffer // what is not written yet
	ends []int        // where in it each of them ends
}

// Write implements io.Writer: part of a block. It does not fail.
func (b *blocks) Write(p []byte) (int, error) { return b.buf.Write(p) }

// end notes that a block ends here.
func (b *blocks) end() { b.ends = append(b.ends, b.buf.Len()) }

// flush writes what there is, and reports how many blocks it could not. When it
// fails in the middle of one, the part is taken away again where that is
// possible: in a regular file.
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

// takeBack shortens a regular file by its last n octets.
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
