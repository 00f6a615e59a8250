package perf

import (
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	"github.com/stag-rdma/stag/rdma"
)

// Result describes a run and its figures. The JSON names of the figures are those of perftest.
type Result struct {
	Info        Info        `json:"test_info"`
	Bandwidth   []Bandwidth `json:"bandwidth,omitempty"` // results, in the order of the sizes
	Latency     []Latency   `json:"latency,omitempty"`   // results, in the order of the sizes
	Interrupted bool        `json:"interrupted,omitempty"`

	// Last repeats the result of the last size, as the files of perftest do.
	Last *Last `json:"results,omitempty"`
}

// Info describes the test and its two ends. The fields about the ends are set after both ends have connected.
type Info struct {
	Test   Test   `json:"test"`
	Server bool   `json:"server"`
	Device string `json:"device,omitempty"`
	Path   string `json:"path,omitempty"`
	carrier.Fields
	MTU       int     `json:"mtu,omitempty"` // MTU of the interface in octets; left out with the kernel port
	CRC       bool    `json:"crc"`
	QPs       int     `json:"qps"`
	TxDepth   int     `json:"tx_depth"`
	RxDepth   int     `json:"rx_depth,omitempty"`          // number of receives, in tests of Sends
	List      int     `json:"post_list,omitempty"`         // number of messages for each call, in bandwidth tests
	Moderated int     `json:"cq_moderation,omitempty"`     // number of messages that share one completion at the smallest size, in bandwidth tests
	Reads     int     `json:"outstanding_reads,omitempty"` // most outstanding Reads, in tests of Reads
	Inline    int     `json:"max_inline_data"`             // size in octets up to which messages are posted inline
	Events    bool    `json:"events"`                      // the test slept until there were completions
	Seconds   float64 `json:"duration,omitempty"`          // time for each size
	Margin    float64 `json:"margin,omitempty"`            // seconds at each end of the duration that were not measured
	Both      bool    `json:"bidirectional"`
	Verified  bool    `json:"verify"`
	Perftest  string  `json:"perftest,omitempty"` // version of the peer's exchange, with Options.Perftest
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
	Size       int     `json:"MsgSize"`      // size of a message in octets
	Iterations uint64  `json:"n_iterations"` // number of messages
	Seconds    float64 `json:"seconds"`
	PeakGbps   float64 `json:"BW_peak_gbps,omitempty"` // highest rate from a post to a completion; 0: not computed
	Gbps       float64 `json:"BW_average_gbps"`
	Mpps       float64 `json:"MsgRate"` // rate in millions of messages a second
}

// Last has the names and units of perftest's text.
type Last struct {
	Size       int     `json:"MsgSize"` // size of a message in octets
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
	Size       int     `json:"MsgSize"` // size of a message in octets
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
	Count      int64   `json:"count"` // number of messages that took no longer than this
}

// info returns an Info with the fields that the options determine.
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

// describe adds the fields of Info that the connections determine.
func (s *runner) describe() {
	s.describeConn(s.lanes[0].qp.Conn())
	i := &s.result.Info
	for _, l := range s.lanes {
		c := l.qp.Conn()
		i.Addresses = append(i.Addresses, Ends{c.Local.String(), l.qp.Number(), c.Remote.String(), l.theirs})
	}
}

// describeConn adds the facts of the first connection that are the same for all connections.
func (s *runner) describeConn(first rdma.Conn) {
	i := &s.result.Info
	i.Device, i.Path, i.MTU, i.CRC = s.port.Name, first.Path, s.port.MTU, first.CRC
	i.Fields = carrier.Of(s.adapter)
	switch {
	case i.Carrier == rdma.CarrierKernel.String():
		i.Device = "kernel"
	case s.Daemon != "" && i.Device == "":
		i.Device = "daemon" // it uses the kernel's TCP
	}
	if s.Test.op() == rdma.WRRead {
		i.Reads = first.ORD
	}
}

// found is the result of one end's own messages in a round.
type found struct {
	messages uint64
	took     time.Duration
	peak     float64 // highest rate in messages a second; 0: not computed
}

// bandwidth adds the rates of the messages of both ends. The rate of an end is measured over the time of that end. A
// server that sends no messages reports what the client measured. The peak is 0 if one end did not compute a peak.
func (s *runner) bandwidth(m *meter, size int, theirs found) (b Bandwidth) {
	b.Size = size
	rate := 0.0 // rate of both directions, in messages a second
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

// latency computes the figures from the samples. If the peer answers each message with a message, the latency is half
// of the round trip.
func (s *runner) latency(x *samples, size int) Latency {
	scale := 1e-3 // converts nanoseconds to microseconds
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
