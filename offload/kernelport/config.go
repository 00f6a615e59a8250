package kernelport

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/tpt"
)

// Config describes a connection. The zero value works.
type Config struct {
	RcvBuf  int // largest number of octets held for the ULP, 4 KiB to 1 GiB; 0 means 256 KiB
	SndBuf  int // largest number of emitted octets that the kernel has not accepted, 64 KiB to 1 GiB; 0 means 256 KiB
	Segment int // largest MaxEmit in octets, 64 to 65535; 0 means the kernel's segment size
	Emit    int // MaxEmit in octets, also above the kernel's segment size, 64 to 65535; 0 means that MaxEmit follows the segment size

	// Table is the table in which the ULP looks up STags. Invalidations in the table
	// wait for the steps of this connection. nil: the ULP uses no table.
	Table *tpt.Table

	// Lot is where the connection waits, and gets its buffers. nil: Run occupies a thread while
	// it waits, and the connection has buffers of its own. Start needs a Lot.
	Lot *Lot

	// After runs after every step and after Fault. After delivers the signals that the
	// ULP has raised meanwhile. nil: no call.
	After func()
}

func (c Config) fill() (Config, error) {
	if c.RcvBuf == 0 {
		c.RcvBuf = 256 << 10
	}
	if c.SndBuf == 0 {
		c.SndBuf = 256 << 10
	}
	if c.Segment == 0 {
		c.Segment = maxSegment
	}
	var errs []error
	for _, v := range []struct {
		name             string
		value, low, high int
	}{
		{"RcvBuf", c.RcvBuf, 4 << 10, 1 << 30},
		{"SndBuf", c.SndBuf, 64 << 10, 1 << 30},
		{"Segment", c.Segment, 64, maxSegment},
	} {
		if v.value < v.low || v.value > v.high {
			errs = append(errs, fmt.Errorf("%s is %d: want %d to %d", v.name, v.value, v.low, v.high))
		}
	}
	if c.Emit != 0 && (c.Emit < 64 || c.Emit > maxSegment) {
		errs = append(errs, fmt.Errorf("Emit is %d: want 0, or 64 to %d", c.Emit, maxSegment))
	}
	return c, errors.Join(errs...)
}

// maxSegment is below the smallest send buffer, so that every segment fits.
const maxSegment = 65535
