package measure

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options say what a run measures, and how.
type Options struct {
	Tables []string      // names of tables; none: all
	Only   string        // rows with one of these, with semicolons between, in Case.String: "write offloaded, MTU 1500"; "": all
	Rounds int           // how often every row is measured
	Time   time.Duration // how long each stream is measured in each round
	Warm   time.Duration // how long each stream runs before that
	MTUs   []int         // octets
	Full   bool          // every message size and number of connections, not a selection
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	switch {
	case o.Rounds < 1:
		return fmt.Errorf("%d rounds: give 1 or more", o.Rounds)
	case o.Time <= 0 || o.Warm < 0:
		return errors.New("the time of a measurement must be above 0, that before it not below")
	case len(o.MTUs) == 0:
		return errors.New("no MTU: give one or more, in octets")
	}
	for _, mtu := range o.MTUs {
		if mtu < 576 || mtu > 9000 {
			return fmt.Errorf("MTU %d: give 576 to 9000 octets", mtu)
		}
	}
	for _, name := range o.Tables {
		if !slices.Contains(TableNames(), name) {
			return fmt.Errorf("no table %q: there are %s", name, strings.Join(TableNames(), ", "))
		}
	}
	return nil
}

func (o Options) wantsTable(name string) bool {
	return len(o.Tables) == 0 || slices.Contains(o.Tables, name)
}

// wants reports whether a case is asked for.
func (o Options) wants(c Case) bool {
	return slices.ContainsFunc(strings.Split(o.Only, ";"), func(part string) bool { return strings.Contains(c.String(), part) })
}

// tables make everything that there is to measure.
var tables = []func(Options) *Table{goodputTable, sizesTable, connectionsTable, latencyTable, rateTable, microTable, takeoverTable, burstTable, memoryTable, idleTable, fairnessTable}

// TableNames are what Options.Tables may hold.
func TableNames() (names []string) {
	for _, t := range tables {
		names = append(names, t(Options{}).Name)
	}
	return names
}
