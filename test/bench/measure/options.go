package measure

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options says what a run measures, and how.
type Options struct {
	Tables []string      // names of tables; empty means all
	Only   string        // texts, separated by semicolons: only rows whose Case.String contains one of them are measured; "" means all rows; an example is "write offloaded, MTU 1500"
	Rounds int           // number of rounds; each measures every row once
	Time   time.Duration // how long a round measures each stream
	Warm   time.Duration // how long each stream runs before it is measured
	MTUs   []int         // octets
	Full   bool          // measure every message size and number of connections, not a selection
}

// Check returns an error if the options are wrong.
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

// measures reports whether this is a run, and the run measures the table.
func (o Options) measures(name string) bool { return o.Rounds != 0 && o.wantsTable(name) }

// wants reports whether the options select a case.
func (o Options) wants(c Case) bool {
	return slices.ContainsFunc(strings.Split(o.Only, ";"), func(part string) bool { return strings.Contains(c.String(), part) })
}

// tables are the functions that make all tables.
var tables = []func(Options) *Table{choiceTable, goodputTable, kernelPortTable, sizesTable, connectionsTable, queuesTable, latencyTable, rateTable, microTable, takeoverTable, burstTable, memoryTable, idleTable, fairnessTable, iscsiTable, sessionsTable,
	portsTable, blackoutsTable, movesTable, drainsTable, evacuationsTable, silenceTable, verbsTable}

// TableNames returns the permitted values of Options.Tables.
func TableNames() (names []string) {
	for _, t := range tables {
		names = append(names, t(Options{}).Name)
	}
	return names
}
