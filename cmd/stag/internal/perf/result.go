package perf

import (
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// Result describes a run and its figures, for JSON. The figures have perftest's names.
type Result struct {
	Info        Info        `json:"test_info"`
	Bandwidth   []Bandwidth `json:"bandwidth,omitempty"` // by size
	Latency     []Latency   `json:"latency,omitempty"`   // by size
	Interrupted bool        `json:"interrupted,omitempty"`

	// Last is the last size once more, as in perftest's files.
	Last *Last `json:"results,omitempty"`
}

// Info describes the test and its two ends. The ends are known after both have connected.
type Info struct {
	Test      Test    `json:"test"`
	Server    bool    `json:"server"`
	Device    string  `json:"device,omitempty"`
	Path      string  `json:"path,omitempty"`
	MTU       int     `json:"mtu,omitempty"` // octets; none with the kernel port
	CRC       bool    `json:"crc"`
	QPs       int     `json:"qps"`
	TxDepth   int     `json:"tx_depth"`
	RxDepth   int     `json:"rx_depth,omitempty"`          // for Sends
	List      int     `json:"post_list,omitempty"`         // of bandwidth tests
	Moderated int     `json:"cq_moderation,omitempty"`     // of bandwidth tests, for the smallest size
	Reads     int     `json:"outstanding_reads,omitempty"` // at most, in tests of Reads
	Inline    int     `json:"max_inline_data"`             // octets
	Events    bool    `json:"events"`                      // slept until there were completions
	Seconds   float64 `json:"duration,omitempty"`          // of each size
	Margin    float64 `json:"margin,omitempty"`            // seconds at both ends of the duration that do not count
	Both      bool    `json:"bidirectional"`
	Verified  bool    `json:"verify"`
	Perftest  string  `json:"perftest,omitempty"` // the peer's version of the exchange, with Options.Perftest
	Addresses []Ends  `json:"connections"`
}

// Ends are the two ends of a QP's connection.
type Ends struct {
	Local     string `json:"local"`
	LocalQPN  uint32 `json:"local_qpn"`
	Remote    string `json:"remote"`
	RemoteQPN uint32 `json:"remote_qpn"`
}

// Bandwidth is the result for messages of one size, of both directions together.
type Bandwidth struct {
	Size       int     `json:"MsgSize"`      // octets
	Iterations uint64  `json:"n_iterations"` // messages
	Seconds    float64 `json:"seconds"`
	PeakGbps   float64 `json:"BW_peak_gbps,omitempty"` // the highest, from a post to a completion; 0: not computed
	Gbps       float64 `json:"BW_average_gbps"`
	Mpps       float64 `json:"MsgRate"` // millions of messages a second
}

// Last has the names and units of perftest's text.
type Last struct {
	Size       int     `json:"MsgSize"` // octets
	Iterations uint64  `json:"n_iterations"`
	Peak       float64 `json:"BW_peak,omitempty"`
	Average    float64 `json:"BW_average,omitempty"`
	Mpps       float64 `json:"MsgRate,omitempty"`

	LatencyMin       float64 `json:"t_min,omitempty"`
	LatencyMax       float64 `json:"t_max,omitempty"`
	LatencyTypical   float64 `json:"t_typical,omitempty"`
	LatencyAverage   float64 `json:"t_avg,omitempty"`
	LatencyDeviation float64 `json:"t_stdev,omitempty"`
	LatencyP99       float64 `json:"percentile_99,omitempty"`
	LatencyP999      float64 `json:"percentile_99.9,omitempty"`
}

// Latency is the result for messages of one size, in microseconds.
type Latency struct {
	Size       int     `json:"MsgSize"` // octets
	Iterations uint64  `json:"n_iterations"`
	Min        float64 `json:"t_min"`
	Max        float64 `json:"t_max"`
	Typical    float64 `json:"t_typical"` // the median
	Average    float64 `json:"t_avg"`
	Deviation  float64 `json:"t_stdev"`
	P99        float64 `json:"t_99"`
	P999       float64 `json:"t_99_9"`
	Histogram  []Step  `json:"histogram,omitempty"`

	// Unsorted are all latencies, in the order of the messages.
	Unsorted []float64 `json:"unsorted,omitempty"`
}

// Step is a point of the distribution of latencies.
type Step struct {
	Percentile float64 `json:"percentile"`
	Usec       float64 `json:"usec"`
	Count      int64   `json:"count"` // messages that took no longer
}

// info returns what the options determine.
func (o Options) info() Info {
	i := Info{
		Test: o.Test, Server: o.Address == "", QPs: o.QPs, TxDepth: o.txDepth(), Inline: o.Inline, Events: o.Events,
		Seconds: o.Duration.Seconds(), Margin: o.Margin.Seconds(), Both: o.Both, Verified: o.Verify, Addresses: []Ends{},
	}
	if !o.Test.Latency() {
		i.List, i.Moderated = int(o.list()), int(o.moderation(o.sizes()[0]))
	}
	if o.Test.op() == rdmaSend {
		i.RxDepth = o.rxDepth()
	}
	return i
}

// describe adds what the connections determine.
func (s *runner) describe() {
	s.describeConn(s.lanes[0].qp.Conn())
	i := &s.result.Info
	for _, l := range s.lanes {
		c := l.qp.Conn()
		i.Addresses = append(i.Addresses, Ends{c.Local.String(), l.qp.Number(), c.Remote.String(), l.theirs})
	}
}

// describeConn adds what the first connection determines for all of them.
func (s *runner) describeConn(first rdma.Conn) {
	i := &s.result.Info
	i.Device, i.Path, i.MTU, i.CRC = s.port.Name, first.Path, s.port.MTU, first.CRC
	if s.KernelPort {
		i.Device = "kernel"
	}
	if s.Test.op() == rdma.WRRead {
		i.Reads = first.ORD
	}
}

// found is the result of one end's own messages in a round.
type found struct {
	messages uint64
	took     time.Duration
	peak     float64 // messages a second; 0: not computed
}

// bandwidth sums the results of both ends' messages, each over its own time. A server that sends no messages reports
// what the client measured. The peak is 0 if one end did not compute it.
func (s *runner) bandwidth(m *meter, size int, theirs found) (b Bandwidth) {
	b.Size = size
	rate := 0.0 // messages a second
	if n, took := m.measured(m.inside, m.total, m.finished); n > 0 {
		b.Iterations = n
		b.Seconds = took.Seconds()
		rate = float64(n) / b.Seconds
	}
	own := m.best()
	peak := max(own, rate)
	if theirs.messages > 0 {
		b.Iterations += theirs.messages
		b.Seconds = max(b.Seconds, theirs.took.Seconds())
		rate += float64(theirs.messages) / theirs.took.Seconds()
	}
	gigabits := 8 * float64(size) / 1e9
	b.Mpps, b.Gbps = rate/1e6, rate*gigabits
	looked := own > 0 || !s.drives()
	if theirs.messages > 0 {
		looked, peak = looked && theirs.peak > 0, peak+theirs.peak
	}
	if looked && m.window > 0 {
		b.PeakGbps = peak * gigabits
	}
	return b
}

// latency computes the figures from the samples. For a message that was answered by another, the latency is half of
// the round trip.
func (s *runner) latency(x *samples, size int) Latency {
	scale := 1e-3 // from nanoseconds
	if s.Test.op() != rdma.WRRead {
		scale /= 2
	}
	h := x.Histogram
	at := func(p float64) float64 { return scale * float64(h.ValueAtPercentile(p)) }
	r := Latency{
		Size: size, Iterations: uint64(h.TotalCount()),
		Min: scale * float64(h.Min()), Max: scale * float64(h.Max()),
		Typical: at(50), Average: scale * h.Mean(), Deviation: scale * h.StdDev(), P99: at(99), P999: at(99.9),
	}
	if s.Histogram {
		for _, b := range h.CumulativeDistribution() {
			r.Histogram = append(r.Histogram, Step{b.Quantile, scale * float64(b.ValueAt), b.Count})
		}
	}
	for _, took := range x.all {
		r.Unsorted = append(r.Unsorted, scale*float64(took))
	}
	return r
}

func (s *runner) foundBandwidth(b Bandwidth) error {
	s.result.Bandwidth = append(s.result.Bandwidth, b)
	s.result.Last = &Last{Size: b.Size, Iterations: b.Iterations, Peak: b.PeakGbps * s.unit(), Average: b.Gbps * s.unit(), Mpps: b.Mpps}
	return s.printBandwidth(b)
}

func (s *runner) foundLatency(l Latency) error {
	s.result.Latency = append(s.result.Latency, l)
	s.result.Last = &Last{
		Size: l.Size, Iterations: l.Iterations, LatencyMin: l.Min, LatencyMax: l.Max, LatencyTypical: l.Typical,
		LatencyAverage: l.Average, LatencyDeviation: l.Deviation, LatencyP99: l.P99, LatencyP999: l.P999,
	}
	return s.printLatency(l)
}
