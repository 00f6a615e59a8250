package health

import (
	"errors"
	"fmt"
	"time"
)

// Config holds the timers of a Group. The zero value works.
type Config struct {
	Interval time.Duration // time between two rounds of probes; 0 means 100 ms
	Settle   time.Duration // how long probes must be answered before a port is used again; 0 means 10 s
	Stuck    time.Duration // age of a transmit completion that is a sign; 0 means 1 s
	MassRTO  int           // number of flows in RTO at once that is a sign; 0 means 8
}

// MaxTargets is the number of targets that a round probes.
const MaxTargets = 4

// These numbers of probe intervals separate a chance from a fault.
const (
	silentToSuspect = 2 // intervals since the last answer, with a sign
	silentToFail    = 3 // intervals since the last answer, with proof
	silentReceive   = 3 // intervals without a received frame, for the sign MassRTO
)

func (c Config) fill() (Config, error) {
	var errs []error
	for _, d := range []struct {
		name string
		v    *time.Duration
		def  time.Duration
	}{{"Interval", &c.Interval, 100 * time.Millisecond}, {"Settle", &c.Settle, 10 * time.Second}, {"Stuck", &c.Stuck, time.Second}} {
		if *d.v < 0 {
			errs = append(errs, fmt.Errorf("%s %v: want a positive duration", d.name, *d.v))
		}
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.MassRTO < 0 {
		errs = append(errs, fmt.Errorf("MassRTO %d: want a positive number", c.MassRTO))
	}
	if c.MassRTO == 0 {
		c.MassRTO = 8
	}
	return c, errors.Join(errs...)
}
