package nic

import (
	"cmp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/rig"
)

// led returns hops over k, and a function that returns the flows that hops has told to follow
// their route to the other interface since the last call.
func led(t *testing.T, k *kernel) (h *hops, told func() []*Flow) {
	h = hopsOver(k)
	var mu sync.Mutex
	var list []*Flow
	h.diverted = func(flows []*Flow, err error) {
		mu.Lock()
		defer mu.Unlock()
		if outOf(err) != otherIndex {
			t.Errorf("diverted: %v", err)
		}
		list = append(list, flows...)
	}
	return h, func() []*Flow {
		mu.Lock()
		defer mu.Unlock()
		defer func() { list = nil }()
		return list
	}
}

// A doubt finds a route that has changed without a message of the kernel. A forced way is
// not looked up, because its flows would go back.
func TestDoubtFindsAMissedChange(t *testing.T) {
	k := newKernel()
	k.learn(gateA, macA)
	k.via[destination(1)], k.via[destination(2)] = gateA, gateA
	h, told := led(t, k)
	f, forced := enter(t, h, loader.Query{Dst: destination(1)}), new(Flow)
	w, err := h.join(t.Context(), wayKey{Query: loader.Query{Dst: destination(2)}, forced: true}, loader.ResolveWait)
	rig.Must(t, err)
	forced.way = w
	for _, f := range []*Flow{f, forced} {
		h.installed(t.Context(), f, h.now(f))
	}
	k.routes = 0
	h.doubt()
	h.lookAgain(t.Context())
	if n := len(told()); k.routes != 1 || n != 0 {
		t.Errorf("%d questions, %d flows diverted: the routes are as before", k.routes, n)
	}
	k.away = true
	for _, want := range [][]*Flow{{f}, nil} {
		h.doubt()
		h.lookAgain(t.Context())
		if list := told(); !slices.Equal(list, want) {
			t.Errorf("%d flows diverted, want the one that follows routes, once", len(list))
		}
	}
}

// A question for the name of an interface waits while a device fails. It is not asked about
// an interface of the adapter.
func TestNameOfOurInterfaceIsNotAsked(t *testing.T) {
	for name, questions := range map[string]int{"eth7": 0, "": 1} {
		k := newKernel()
		k.away = true
		h := hopsOver(k)
		h.nameOf = func(index int) string {
			if index != otherIndex {
				t.Errorf("name of %d", index)
			}
			return name
		}
		err := h.enter(t.Context(), new(Flow), loader.Query{Dst: gateA})
		rig.Says(t, err, ErrOtherInterface, cmp.Or(name, "eth4"), "eth3")
		if outOf(err) != otherIndex || k.names != questions {
			t.Errorf("leads through %d, %d questions, want %d", outOf(err), k.names, questions)
		}
	}
}

// A flow belongs to its way before an engine runs it. If the route changes meanwhile, the
// flow is told when an engine runs it, whether or not other flows of the way have been told.
func TestRouteChangesBeforeTheEngineRunsTheFlow(t *testing.T) {
	for _, others := range []int{0, 2} {
		k := newKernel()
		k.learn(gateA, macA)
		k.via[destination(1)] = gateA
		h, told := led(t, k)
		for range others {
			f := enter(t, h, loader.Query{Dst: destination(1)})
			h.installed(t.Context(), f, h.now(f))
		}
		f := enter(t, h, loader.Query{Dst: destination(1)})
		k.away = true
		h.reroute(everywhere)
		h.lookAgain(t.Context())
		if n := len(told()); n != others {
			t.Errorf("%d flows told, want the %d that engines run", n, others)
		}
		h.installed(t.Context(), f, h.now(f))
		h.lookAgain(t.Context())
		if !slices.Contains(told(), f) {
			t.Errorf("beside %d others, the flow is not told that its route leads elsewhere", others)
		}
		h.reroute(everywhere)
		h.lookAgain(t.Context())
		if n := len(told()); n != 0 {
			t.Errorf("%d flows told again", n)
		}
	}
}

// The kernel reports some changes before it has completed them, and answers with the old
// route meanwhile.
func TestChangeIsReportedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		k.learn(gateA, macA)
		k.via[destination(1)] = gateA
		h, told := led(t, k)
		f := enter(t, h, loader.Query{Dst: destination(1)})
		h.installed(t.Context(), f, h.now(f))
		k.changing = func() { k.away = true }
		go h.survey(t.Context())
		h.reroute(everywhere)
		time.Sleep(2 * surveyMost)
		if len(told()) != 1 {
			t.Error("the flow is not told that its route leads elsewhere")
		}
		k.mu.Lock()
		before := k.routes
		k.mu.Unlock()
		time.Sleep(time.Minute)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.routes != before {
			t.Errorf("%d more questions, although nothing has changed", k.routes-before)
		}
	})
}

// A kernel that is slow to answer does not delay the next survey.
func TestSlowAnswerDelaysNoSurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		k.learn(gateA, macA)
		k.via[destination(1)] = gateA
		h, told := led(t, k)
		f := enter(t, h, loader.Query{Dst: destination(1)})
		h.installed(t.Context(), f, h.now(f))
		const slow = 10 * time.Second
		k.slow = slow
		go h.survey(t.Context())
		h.reroute(everywhere)
		synctest.Wait()
		time.Sleep(3 * slow) // the survey and the one after it are over
		k.mu.Lock()
		k.slow, k.away = 0, true
		k.mu.Unlock()
		h.reroute(everywhere)
		time.Sleep(2 * surveyMost)
		if len(told()) != 1 {
			t.Error("the flow is not told that its route leads elsewhere")
		}
	})
}
