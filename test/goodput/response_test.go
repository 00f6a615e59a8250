package goodput

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

const response = "testdata/response.txt"

// controls are the congestion controls, each with its mean window in segments at a loss
// probability of p, by theory.
var controls = []struct {
	name   string
	window func(p float64, rtt time.Duration) float64
}{
	{"reno", func(p float64, _ time.Duration) float64 { return mathis(p) }},
	{"cubic", func(p float64, rtt time.Duration) float64 { return max(mathis(p), curve(p, rtt)) }},
}

// mathis returns √(3/2p) (Mathis, Semke, Mahdavi, Ott: The Macroscopic Behavior of the
// TCP Congestion Avoidance Algorithm, 1997). It assumes that a window grows by one
// segment per round trip. This is true here because the sender counts octets (RFC
// 3465), however many an ACK acknowledges.
func mathis(p float64) float64 { return math.Sqrt(3 / (2 * p)) }

// curve returns the window of RFC 9438 §5.1, or that of mathis if it is larger, because
// of the Reno-friendly region (§4.3).
func curve(p float64, rtt time.Duration) float64 {
	const c, beta = 0.4, 0.7
	return math.Pow(c*(3+beta)/(4*(1-beta)), 0.25) * math.Pow(rtt.Seconds()/p, 0.75)
}

// withTimeouts returns the segments per second in the model of Padhye, Firoiu, Towsley
// and Kurose (Modeling TCP Throughput, 1998; RFC 5348 §3.1), with b = 1 and the window
// of the congestion control.
func withTimeouts(window, p float64, rtt time.Duration) float64 {
	rto := max(200*time.Millisecond, rtt).Seconds()
	return 1 / (rtt.Seconds()/window + rto*min(1, 3*math.Sqrt(3*p/8))*p*(1+32*p*p))
}

// least and most bound the goodput. The lower bound is least times the rate in the
// model with timeouts. That model describes the Reno of 1990, which needs a timeout for
// nearly every window with two losses. The upper bound is most times the rate of a mean
// window without interruption.
//
// least: No allowance for timeouts is needed, because SACK, RACK and tail loss probes
// avoid most of them. But a measurement has only about a hundred losses, which is an
// error of ±10% of the losses and ±5% of the window. The formulas also let the window
// grow during the repair of a loss. The repair takes one of the few round trips between
// two losses.
//
// most: Several losses in one window cause one reduction, but the formulas count each
// loss. CUBIC's formula also assumes equal intervals between losses. By chance some
// intervals are long, and at their end the window grows by the cube.
const least, most = 0.8, 1.3

var (
	losses = []float64{0.001, 0.003, 0.01, 0.03, 0.1}
	delays = []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond}
)

// TestResponse compares the goodput over loss and delay with theory, and the table with
// the golden file.
func TestResponse(t *testing.T) {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "control\tloss\tround trip\tsegments/s\twith timeouts\twithout\ttimeouts\trecoveries\n")
	for _, c := range controls {
		for _, p := range losses {
			for _, d := range delays {
				rtt := 2 * d
				rate, st := respond(t, c.name, p, d)
				w := c.window(p, rtt)
				low, high := withTimeouts(w, p, rtt), w/rtt.Seconds()
				fmt.Fprintf(tw, "%s\t%.1f%%\t%v\t%.0f\t%.0f\t%.0f\t%d\t%d\n", c.name, 100*p, rtt, rate, low, high, st.Timeouts, st.Recoveries)
				if rate < least*low || rate > most*high {
					t.Errorf("%s, loss %v, round trip %v: %.0f segments a second; theory has %.0f to %.0f", c.name, p, rtt, rate, low, high)
				}
			}
		}
	}
	tw.Flush()
	same(t, response, b.Bytes())
}

// same compares a table with its golden file, or writes the file.
func same(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("the table has changed; if that is meant, run this test with -update\ngot:\n%swant:\n%s", got, want)
	}
}

// respond returns the data segments per second of virtual time after slow start. Only
// loss and delay limit the link.
func respond(t *testing.T, control string, p float64, delay time.Duration) (rate float64, st tcp.Stats) {
	t.Helper()
	const mss = 1500 - 40 - 12
	volume := uint64(100/p) * mss
	w, err := world.New(world.Config{
		Link:   simnic.Config{Seed: 11, Latency: delay, Rate: 100e9, Loss: p, Frames: 2048},
		Engine: engine.Config{TCP: tcp.Config{RcvBuf: 16 << 20, SndBuf: 16 << 20}},
	})
	if err != nil {
		t.Fatal(err)
	}
	src, sink := octets.NewSource(volume, 1), octets.NewSink(volume, 1)
	flow := world.Flow{Scale: 14, Edit: func(_ int, s *tcp.State) { s.Congestion = control }}
	c, err := w.Connect(flow, src, sink)
	if err != nil {
		t.Fatal(err)
	}
	until := func(octets uint64) {
		t.Helper()
		if err := w.Run(24*time.Hour, func() bool { return sink.Received() >= octets }); err != nil {
			t.Fatalf("%s, loss %v, delay %v: %v after %d of %d octets", control, p, delay, err, sink.Received(), volume)
		}
	}
	until(volume / 10)
	begin, before := w.Now(), sink.Received()
	until(volume)
	rate = float64(sink.Received()-before) / mss / w.Now().Sub(begin).Seconds()
	inspect(t, w, c, func(c *tcp.Conn) { st = c.Stats() })
	return rate, st
}
