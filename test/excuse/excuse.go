// Package excuse knows the faults of perftest and qperf after which a second try is allowed. Each fault is
// recognized by what the program prints. Nothing else excuses a failure.
package excuse

import (
	"slices"
	"strings"
)

// fault is a fault of perftest 4.5 or of qperf 0.4.11 that has nothing to do with the adapter.
type fault struct {
	said []string // any of these texts shows the fault
	why  string
}

var (
	// perftest compares the processor's counter with the time of day before it prints a row,
	// for 0.2 s or more. If other programs disturb that, the row has zeros or infinite values, and
	// without -F the program ends. Each row is measured anew.
	clock = fault{[]string{"Correlation coefficient r^2"}, "perftest could not measure the processor's clock"}
	// perftest's client makes a second connection as soon as the first one is there. Its server
	// closes the first listener before it listens again. A client that comes between is rejected,
	// tries again with memory that it has freed, and crashes. Over stag's libraries it gets an event.
	// Linux's siw connects within rdma_connect, which fails then.
	early = fault{[]string{"RDMA_CM_EVENT_REJECTED", "Failed to connect through RDMA CM.\nERRNO: Connection refused."},
		"perftest's second connection came before its server listened again"}
	// perftest's ends tell each other on the first connection that they are done. The server destroys
	// its QP as soon as it has sent that. Linux's siw fails a Send of the client that is on the wire
	// already, if the end of the connection comes before siw has returned from sending (6.1,
	// siw_qp_sq_proc_tx). On an emulated machine it can. The client has printed its results before.
	parted = fault{[]string{"Bad wc status 2\n Unable to write to socket/rdma_cm\nFailed to close connection between server and client"},
		"perftest's server had gone before siw had returned from sending the client's last message"}
	// qperf's server binds a port, tells its client the number, and only then listens
	// (cm_open_server). A client that comes between is rejected.
	unheard = fault{[]string{"unexpected event from RDMA CM: Event rejected\n    expecting: Event established"},
		"qperf's client came before its server listened"}
)

// Tries is how often a program may be tried.
const Tries = 10

// Of returns why the failure of a run of perftest is excused, or "". outputs is what the programs
// of the run have printed so far. A run with an excuse can be ended at once.
func Of(outputs ...string) string { return find(outputs, clock, early) }

// Early is Of for tests that do not look at perftest's figures, and whose client may be over siw.
func Early(outputs ...string) string { return find(outputs, early, parted) }

// Qperf returns why the failure of a run of qperf is excused, or "".
func Qperf(outputs ...string) string { return find(outputs, unheard) }

func find(outputs []string, faults ...fault) string {
	for _, out := range outputs {
		for _, f := range faults {
			if slices.ContainsFunc(f.said, func(s string) bool { return strings.Contains(out, s) }) {
				return f.why
			}
		}
	}
	return ""
}
