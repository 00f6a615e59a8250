package engine

import (
	"testing"

	"github.com/stag-rdma/stag/offload/bell"
	"github.com/stag-rdma/stag/test/foreign"
)

// After a long yield, an engine that serves other programs sleeps without a yield for a while. Any
// other engine, and one whose yields are short, always yields.
func TestNoYieldAfterLongOne(t *testing.T) {
	e := &Engine{}
	e.yielded(10 * longYield)
	if !e.mayYield() {
		t.Error("an engine without bells does not yield")
	}
	memory, _, _ := foreign.Memory(t, bell.PageLen)
	b, err := bell.New(memory, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := e.rest.bells.Add(b, func() {}); err != nil {
		t.Fatal(err)
	}
	defer e.rest.bells.End()
	e.yielded(longYield)
	if !e.mayYield() {
		t.Error("no yield after a short one")
	}
	e.yielded(longYield + 1)
	for n := range noYields - 1 {
		if e.mayYield() {
			t.Fatalf("yields before sleep %d", n)
		}
	}
	if !e.mayYield() {
		t.Error("never yields again")
	}
	e.yielded(longYield + 1)
	if e.mayYield() {
		t.Error("yields after a long one")
	}
	e.count.RxPackets += streaming
	if !e.mayYield() {
		t.Error("a stream goes on without yields")
	}
	e.count.TxPackets += streaming
	if e.yielded(longYield + 1); !e.mayYield() {
		t.Error("no yield after a long one within a stream")
	}
}
