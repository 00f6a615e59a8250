package metrics

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// labels has all labels of a value. A family uses only the labels that it declares.
type labels map[string]string

// and returns l with more pairs of name and value.
func (l labels) and(pairs ...string) labels {
	more := make(labels, len(l)+len(pairs)/2)
	for name, value := range l {
		more[name] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		more[pairs[i]] = pairs[i+1]
	}
	return more
}

// sheet has the series of one scrape. Values of the same series are summed. The queues
// of a device are added up in this way. An engine that reports a series twice therefore
// does not spoil the whole scrape.
type sheet map[*Family]map[string]*series

type series struct {
	labels  []string           // values of the labels, in the order of the family's labels
	value   float64            // of a histogram: the sum of the observations
	buckets map[float64]uint64 // of a histogram: observations by the upper bound of their bucket
}

func (s sheet) add(f *Family, v float64, l labels) { s.at(f, l).value += v }

// set sets the value of a series. A value that is reported twice is not added up.
func (s sheet) set(f *Family, v float64, l labels) { s.at(f, l).value = v }

// observe adds observations to the bucket of a histogram that ends at bound.
func (s sheet) observe(f *Family, bound float64, n uint64, l labels) {
	x := s.at(f, l)
	if x.buckets == nil {
		x.buckets = map[float64]uint64{}
	}
	x.buckets[bound] += n
}

func (s sheet) at(f *Family, l labels) *series {
	values := make([]string, len(f.Labels))
	for i, name := range f.Labels {
		values[i] = l[name]
	}
	if s[f] == nil {
		s[f] = map[string]*series{}
	}
	key := strings.Join(values, "\xff") // this octet is in no valid UTF-8
	if s[f][key] == nil {
		s[f][key] = &series{labels: values}
	}
	return s[f][key]
}

// collect sends every series. The registry sorts them.
func (s sheet) collect(to chan<- prometheus.Metric) {
	for f, all := range s {
		for _, x := range all {
			m, err := x.metric(f)
			if err != nil {
				m = prometheus.NewInvalidMetric(f.desc, err)
			}
			to <- m
		}
	}
}

// metric returns the series as the registry takes it. The buckets of Prometheus are
// cumulative.
func (x *series) metric(f *Family) (prometheus.Metric, error) {
	if !f.Histogram {
		return prometheus.NewConstMetric(f.desc, f.Kind, x.value, x.labels...)
	}
	all, count := map[float64]uint64{}, uint64(0)
	for _, bound := range slices.Sorted(maps.Keys(x.buckets)) {
		count += x.buckets[bound]
		if !math.IsInf(bound, 1) {
			all[bound] = count
		}
	}
	return prometheus.NewConstHistogram(f.desc, count, x.value, all, x.labels...)
}
