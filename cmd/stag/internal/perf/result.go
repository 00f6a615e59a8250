package perf

import (
	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stag-rdma/stag/rdma"
)

// Result is what a run was like and what it found, for programs. The names of
// the figures are perftest's.
type Result struct {
	Info        Info        `json:"test_info"`
	Bandwidth   []Bandwidth `json:"bandwidth,omitempty"` // by size
	Latency     []Latency   `json:"latency,omitempty"`   // by size
	Interrupted bool        `json:"interrupted,omitempty"`
}

// Info is what was measured, and between whom. It is zero until both ends have
// been connected.
type Info struct {
	Test      Test    `json:"test"`
	Server    bool    `json:"server"`
	Device    string  `json:"device"`
	Path      string  `json:"path"`
	MTU       int     `json:"mtu,omitempty"` // octets; none with the kernel port
	CRC       bool    `json:"crc"`
	QPs       int     `json:"qps"`
	TxDepth   int     `json:"tx_depth"`
	RxDepth   int     `json:"rx_depth,omitempty"` // of Sends
	Seconds   float64 `json:"duration,omitempty"`
	Both      bool    `json:"bidirectional"`
	Verified  bool    `json:"verify"`
	Addresses []Ends  `json:"connections"`
}

// Ends are where a QP's connection begins and ends.
type Ends struct {
	Local     string `json:"local"`
	LocalQPN  uint32 `json:"local_qpn"`
	Remote    string `json:"remote"`
	RemoteQPN uint32 `json:"remote_qpn"`
}

// Bandwidth is what messages of one size came to, of both directions together.
type Bandwidth struct {
	Size       int     `json:"MsgSize"`      // octets
	Iterations uint64  `json:"n_iterations"` // messages
	Seconds    float64 `json:"seconds"`
	PeakGbps   float64 `json:"BW_peak_gbps"` // over a TX depth of messages of this end, at best
	Gbps       float64 `json:"BW_average_gbps"`
	Mpps       float64 `json:"MsgRate"` // millions of messages a second
}

// Latency is how long messages of one size took, in microseconds.
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
}

// Step is a point of the distribution of latencies.
type Step struct {
	Percentile float64 `json:"percentile"`
	Usec       float64 `json:"usec"`
	Count      int64   `json:"count"` // messages that took no longer
}

func (s *session) describe() {
	first := s.lanes[0].qp.Conn()
	i := Info{
		Test: s.Test, Server: s.serves(), Device: s.port.Name, Path: first.Path, MTU: s.port.MTU, CRC: first.CRC,
		QPs: s.QPs, TxDepth: s.txDepth(), Seconds: s.Duration.Seconds(), Both: s.Both, Verified: s.Verify,
	}
	if s.KernelPort {
		i.Device = "kernel"
	}
	if s.Test.op() == rdmaSend {
		i.RxDepth = s.rxDepth()
	}
	for _, l := range s.lanes {
		c := l.qp.Conn()
		i.Addresses = append(i.Addresses, Ends{c.Local.String(), l.qp.Number(), c.Remote.String(), l.theirs.Number})
	}
	s.result.Info = i
}

// bandwidth sums what both ends' messages came to, each over its own time. A
// server that sends none says what the client found.
func (s *session) bandwidth(m *meter, size int) (b Bandwidth) {
	b.Size = size
	rate := 0.0 // messages a second
	if s.drives() && m.total > 0 {
		b.Iterations = m.total
		b.Seconds = m.finished.Sub(m.begun).Seconds()
		rate = float64(m.total) / b.Seconds
	}
	theirs, took := uint64(0), 0.0
	for _, l := range s.lanes {
		theirs += l.peer.count
		took = max(took, l.peer.took.Seconds())
	}
	if theirs > 0 {
		b.Iterations += theirs
		b.Seconds = max(b.Seconds, took)
		rate += float64(theirs) / took
	}
	gigabits := 8 * float64(size) / 1e9
	b.Mpps, b.Gbps, b.PeakGbps = rate/1e6, rate*gigabits, max(m.peak, rate)*gigabits
	return b
}

// latency takes the figures from the histogram. Of a message that was answered
// by another, one way is half of it.
func (s *session) latency(h *hdrhistogram.Histogram, size int) Latency {
	scale := 1e-3 // from nanoseconds
	if s.Test.op() != rdma.WRRead {
		scale /= 2
	}
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
	return r
}
