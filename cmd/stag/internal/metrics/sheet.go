package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// labels has every label of a value. A family uses those that it has.
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

// sheet is the series of one scrape. Values of the same series are summed: the queues of
// a device are, and an engine that reports something twice cannot spoil the scrape of
// the others.
type sheet map[*Family]map[string]*series

type series struct {
	labels []string // values
	value  float64
}

func (s sheet) add(f *Family, v float64, l labels) { s.at(f, l).value += v }

// set adds a value that is the same however often it is reported.
func (s sheet) set(f *Family, v float64, l labels) { s.at(f, l).value = v }

func (s sheet) at(f *Family, l labels) *series {
	values := make([]string, len(f.Labels))
	for i, name := range f.Labels {
		values[i] = l[name]
	}
	if s[f] == nil {
		s[f] = map[string]*series{}
	}
	key := strings.Join(values, "\xff") // in no valid UTF-8
	if s[f][key] == nil {
		s[f][key] = &series{labels: values}
	}
	return s[f][key]
}

// collect sends every series. The registry sorts them.
func (s sheet) collect(to chan<- prometheus.Metric) {
	for f, all := range s {
		for _, x := range all {
			m, err := prometheus.NewConstMetric(f.desc, f.Kind, x.value, x.labels...)
			if err != nil {
				m = prometheus.NewInvalidMetric(f.desc, err)
			}
			to <- m
		}
	}
}
