package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/stag-rdma/stag/iscsi/backend"
)

// Medium is a disk of a target, as the command line says it.
type Medium struct {
	LUN   uint16
	Kind  string // kindRAM, kindFile or kindNBD
	Where string // path or URL; "" for RAM
	Size  int64  // in octets; RAM only
}

// These are the kinds of media.
const (
	kindRAM  = "ram"
	kindFile = "file"
	kindNBD  = "nbd"
)

// maxLUN is the greatest LUN of a target.
const maxLUN = 255

const mediumHelp = "write N=ram:SIZE, N=file:PATH or N=nbd:URL, as in 1=ram:64M"

// ParseMedium reads N=KIND:WHAT.
func ParseMedium(word string) (m Medium, err error) {
	number, what, ok := strings.Cut(word, "=")
	n, err := strconv.ParseUint(number, 10, 16)
	if !ok || err != nil {
		return m, fmt.Errorf("%q: %s", word, mediumHelp)
	}
	if n > maxLUN {
		return m, fmt.Errorf("%q: choose a LUN from 0 to %d", word, maxLUN)
	}
	m.LUN = uint16(n)
	if strings.HasPrefix(what, "nbd://") || strings.HasPrefix(what, "nbd+unix://") {
		what = "nbd:" + what
	}
	m.Kind, m.Where, _ = strings.Cut(what, ":")
	switch {
	case m.Where == "":
		return m, fmt.Errorf("%q: %s", word, mediumHelp)
	case m.Kind == kindRAM:
		m.Size, err = ParseSize(m.Where)
		m.Where = ""
		if err == nil && m.Size == 0 {
			err = errors.New("choose a size above 0")
		}
	case m.Kind != kindFile && m.Kind != kindNBD:
		err = errors.New(mediumHelp)
	}
	if err != nil {
		return m, fmt.Errorf("%q: %w", word, err)
	}
	return m, nil
}

// ParseSize reads a number of octets with an optional K, M, G or T, which are powers of
// 1024.
func ParseSize(word string) (int64, error) {
	digits, shift := word, 0
	if i := strings.IndexAny(word, "KMGTkmgt"); i >= 0 && i == len(word)-1 {
		digits, shift = word[:i], 10*(1+strings.Index("KMGT", strings.ToUpper(word[i:])))
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > 1<<62>>shift {
		return 0, fmt.Errorf("size %q: write octets, or a number with K, M, G or T, as in 64M", word)
	}
	return n << shift, nil
}

// String returns the kind, and where the medium is.
func (m *Medium) String() string { return strings.TrimSpace(m.Kind + " " + m.Where) }

// open opens the medium. The caller must close it.
func (m *Medium) open(ctx context.Context, readOnly bool) (backend.Medium, error) {
	switch m.Kind {
	case kindRAM:
		return backend.NewRAM(m.Size)
	case kindNBD:
		return backend.OpenNBD(ctx, m.Where)
	}
	d, err := backend.OpenFile(m.Where, backend.FileOptions{ReadOnly: readOnly})
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: make the file by truncate -s SIZE %s", err, m.Where)
	case errors.Is(err, os.ErrPermission) && !readOnly:
		return nil, fmt.Errorf("%w: choose --read-only, or run as a user who may write", err)
	}
	return d, err
}
