package measure

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/wire"
)

// Each stage processes a correct packet and detects a wrong one.
func TestStages(t *testing.T) {
	for _, mtu := range []int{576, 1500, 3506, 9000} {
		b, err := newBench(mtu)
		if err != nil {
			t.Fatalf("MTU %d: %v", mtu, err)
		}
		if n := len(b.frame); n > mtu+wire.EthernetLen || n < mtu+wire.EthernetLen-3 {
			t.Errorf("MTU %d: frame of %d octets", mtu, n)
		}
		for i := range b.memory {
			b.memory[i] = byte(i * 7)
		}
		want := bytes.Clone(b.memory)
		for _, s := range stages[5:] {
			if err := s.do(b); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
		copy(b.frame, b.chunk[len(b.chunk)-len(b.frame):])
		clear(b.memory)
		for _, s := range stages[:5] {
			if err := s.do(b); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
		if !bytes.Equal(b.memory, want) {
			t.Errorf("MTU %d: what went out has not come in", mtu)
		}
		b.frame[len(b.frame)-9] ^= 1
		if b.headersIn() == nil || b.fpduIn() == nil {
			t.Error("a wrong octet was not noticed")
		}
	}
}

func TestStagesAllocateNothing(t *testing.T) {
	b, err := newBench(1500)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stages {
		if n := testing.AllocsPerRun(100, func() {
			if err := s.do(b); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", s.name, n)
		}
	}
}

func TestMicroRuns(t *testing.T) {
	o := Options{Tables: []string{microName}, Rounds: 1, Time: 10 * time.Millisecond, MTUs: []int{1500, 3506}}
	if o.NeedsRoot() || !(Options{}).NeedsRoot() || !(Options{Tables: []string{microName, "goodput"}}).NeedsRoot() {
		t.Error("the wrong tables need root")
	}
	r, err := Run(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	rows := r.table(microName).Rows
	if len(rows) != 2*(len(stages)+2) {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		if row.Median[PerPacketNs] <= 0 || row.Median[PerOctetNs] <= 0 || row.Ratio[PerPacketNs] <= 0 {
			t.Errorf("%v: %v, %v", row.Case, row.Median, row.Ratio)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := runStage(ctx, everything, 1500, time.Hour); err != context.Canceled {
		t.Errorf("interrupted: %v", err)
	}
}
