package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// namespace is the prefix of every name.
const namespace = "stag_"

// Family is one metric with all of its series.
type Family struct {
	Name   string
	Help   string
	Kind   prometheus.ValueType
	Labels []string
	// From are the counters of a report that the family sums, as layer.name. If From
	// is empty, code computes the value.
	From []string
	// QP is true if the family is exported only with --per-qp.
	QP bool
	// Histogram is true if the family is a histogram. Kind is not used then.
	Histogram bool

	desc *prometheus.Desc
}

// Families are all metrics, in the order of the documentation.
func Families() []*Family { return families }

var (
	families []*Family

	// counted has the families that sum a counter, indexed by layer.name.
	counted = map[string][]*Family{}
)

// These are the labels of families. A name such as ofQueue says what a series of the
// family belongs to.
var (
	ofEngine  = []string{"program", "pid", "uid", "adapter"}
	ofDevice  = append([]string{"device"}, ofEngine...)
	ofPort    = append([]string{"device", "port"}, ofEngine...) // the same labels as node_infiniband metrics
	ofQueue   = append([]string{"device", "queue"}, ofEngine...)
	ofProgram = []string{"device", "netns"}
	ofQP      = append([]string{"qp"}, ofEngine...)
)

// and returns a list of labels with more labels appended.
func and(labels []string, more ...string) []string { return slices.Concat(labels, more) }

func gauge(name, help string, labels ...string) *Family {
	return define(&Family{Name: namespace + name, Help: help, Kind: prometheus.GaugeValue, Labels: labels})
}

func counter(name, help string, labels []string, from ...string) *Family {
	return define(&Family{Name: namespace + name + "_total", Help: help, Kind: prometheus.CounterValue, Labels: labels, From: from})
}

// most defines a family for a counter that is a high-water mark.
func most(name, help, from string) *Family {
	return define(&Family{Name: namespace + name, Help: help, Kind: prometheus.GaugeValue, Labels: ofDevice, From: []string{from}})
}

func qpGauge(name, help string, labels ...string) *Family {
	f := gauge("qp_"+name, help, and(ofQP, labels...)...)
	f.QP = true
	return f
}

func qpCounter(name, help string, from ...string) *Family {
	f := define(&Family{Name: namespace + "qp_" + name + "_total", Help: help, Kind: prometheus.CounterValue, Labels: ofQP})
	f.QP, f.From = true, from // not added to counted, because the counters belong to one QP
	return f
}

// histogram defines a family whose buckets code fills in.
func histogram(name, help string, labels []string) *Family {
	return define(&Family{Name: namespace + name, Help: help, Labels: labels, Histogram: true})
}

// both returns the names of a counter of iSCSI sessions in the layers of both roles.
func both(name string) []string { return []string{"iscsi_initiator." + name, "iscsi_target." + name} }

// define adds a family to the lists. The initialization of the family's variable calls
// define.
func define(f *Family) *Family {
	f.desc = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
	families = append(families, f)
	for _, c := range f.From {
		counted[c] = append(counted[c], f)
	}
	return f
}
