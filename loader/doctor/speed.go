package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/choice"
	"github.com/stag-rdma/stag/loader/netdev"
)

// probeMetadata reports whether the driver has room for steering records. Records are
// no requirement: without them the engine parses each packet.
func probeMetadata(l loader.Link) Probe {
	const name = "metadata"
	if l.Facts().Metadata {
		return ok(name, "driver %s has room for steering records", l.Driver)
	}
	return unknown(name, "with stag running, compare the counters steered and steered_bare: stag show",
		"not known of driver %q; without it the engine parses each packet", l.Driver)
}

// probeZeroCopy asks the kernel whether the driver offers zero copy. Only opening a
// queue shows whether zero copy works.
func probeZeroCopy(l loader.Link, generic bool) Probe {
	const name = "zero copy"
	if generic {
		return ok(name, "never in generic mode")
	}
	features, err := netdev.FeaturesOf(l.PortIndex)
	row := offersZeroCopy(name, l, features, err)
	if pieces, err := netdev.PiecesOf(l.PortIndex); err == nil && features&netdev.ZeroCopy != 0 {
		row.Detail += piecesOf(pieces)
	}
	return row
}

// piecesOf says of how many descriptors a packet may consist. stag uses one.
func piecesOf(n int) string {
	if n == 1 {
		return ", for packets of one piece"
	}
	return fmt.Sprintf(", for packets of up to %d pieces", n)
}

// askZeroCopy is the fix if the kernel does not report zero copy.
const askZeroCopy = "use Linux 6.3 or later, which tells it; or, with stag running: stag show devices"

// offersZeroCopy returns the row for the features that the kernel reports, or for the
// kernel's error.
func offersZeroCopy(name string, l loader.Link, features netdev.Features, err error) Probe {
	switch {
	case err != nil && l.Facts().ZeroCopy:
		return unknown(name, askZeroCopy, "driver %s is said to have it; this kernel does not tell", l.Driver)
	case err != nil:
		return unknown(name, askZeroCopy, "not known of driver %q, and this kernel does not tell", l.Driver)
	case features&netdev.ZeroCopy != 0:
		return ok(name, "driver %s offers it", l.Driver)
	}
	return ok(name, "driver %s has none: the kernel copies each packet once", l.Driver)
}

// probeTxChecksum says who computes the checksums of packets that stag sends.
func (v *view) probeTxChecksum(l loader.Link) Probe {
	return ok("sums to send", "%v", v.net.TxSums(l))
}

// probeExpectation says which kind of speed to expect. The README has numbers, with the
// conditions of their measurement.
func probeExpectation(l loader.Link, generic bool) Probe {
	const name = "what to expect"
	features, err := netdev.FeaturesOf(l.PortIndex)
	switch {
	case generic:
		return hint(name, "native mode, where the driver has it", "generic mode: each packet is the kernel's first, and copied then: for tests, not for speed")
	case l.Facts().Speed != "":
		return ok(name, "%s", l.Facts().Speed)
	case err != nil:
		return unknown(name, askZeroCopy, "one copy by the kernel for each packet, or none: this kernel does not tell")
	case features&netdev.ZeroCopy != 0:
		return ok(name, "the driver's speed; not measured on this hardware")
	}
	return ok(name, "one copy by the kernel for each packet; not measured on this hardware")
}

// probeCarrier says which carrier an adapter with this wish would choose (--carrier auto).
func (v *view) probeCarrier(l loader.Link, needs Needs, wish choice.Wish) Probe {
	name := "carrier for " + wish.String()
	port, err := choice.LookPort(v.net, l.Name)
	if err != nil {
		return unknown(name, "look at "+l.Name+" again", "%v", err)
	}
	request := choice.Request{Carrier: choice.Auto, Wish: wish, Generic: needs.Generic}
	return ok(name, "%v", request.Choose(choice.LookRights(needs.Memory), []choice.Port{port}))
}

// probeCustoms reports the driver's quirk from the table of drivers. The row says if
// the quirk was not tried.
func probeCustoms(l loader.Link) Probe {
	const name = "driver's customs"
	facts := l.Facts()
	if facts.Quirk == "" {
		return ok(name, "nothing particular is said of driver %q", l.Driver)
	}
	said := "not tried here: driver %s is said to be one that %s"
	if facts.Seen {
		said = "driver %s is one that %s"
	}
	return hint(name, strings.ReplaceAll(facts.Remedy, "IFACE", l.Port), said, l.Driver, facts.Quirk)
}

// probeNAPI reports whether NAPI runs in kernel threads. With threads two processors
// share the work of one direction. But a message that arrives alone waits until a
// thread wakes up.
func probeNAPI(l loader.Link) Probe {
	const name = "NAPI"
	list, err := netdev.NAPIs(l.PortIndex)
	if err != nil || len(list) == 0 {
		return probeNAPISysfs(name, l)
	}
	return judgeNAPI(name, l, !slices.ContainsFunc(list, func(n netdev.NAPI) bool { return !n.Threaded }))
}

// judgeNAPI says which use the present setting suits, and how to change it.
func judgeNAPI(name string, l loader.Link, threaded bool) Probe {
	if threaded {
		return hint(name, "for latency: stag load --tune=latency "+l.Port, "in threads, which is for throughput: a small message waits until its thread is woken")
	}
	return hint(name, "for throughput: stag load --tune=throughput "+l.Port, "not in threads, which is for latency: large transfers can be faster with threads")
}

// probeNAPISysfs reads the setting from sysfs. It is for kernels that do not list NAPI
// instances, and for interfaces without them.
func probeNAPISysfs(name string, l loader.Link) Probe {
	at := filepath.Join(sysClassNet, l.Port)
	if index, err := readNumber(filepath.Join(at, "ifindex")); err != nil || index != uint64(l.PortIndex) {
		return unknown(name, "stag load --tune=throughput "+l.Port+", or --tune=latency: stag load -h says which", "none is known: /sys shows another network namespace, and the kernel names none")
	}
	threaded, err := readNumber(filepath.Join(at, "threaded"))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ok(name, "this kernel has no threads for it (Linux 5.12)")
	case err != nil:
		return unknown(name, "cat "+filepath.Join(at, "threaded"), "cannot be told: %v", err)
	}
	return judgeNAPI(name, l, threaded != 0)
}

// probeInterrupts checks that the interrupts of the queues do not all go to one
// processor.
func probeInterrupts(l loader.Link) Probe {
	const name = "interrupts"
	list, err := netdev.NAPIs(l.PortIndex)
	if err != nil {
		return unknown(name, "use Linux 6.8 or later, which tells it, or read /proc/interrupts", "this kernel does not tell")
	}
	places := map[string]int{}
	for _, n := range list {
		if n.IRQ == 0 {
			continue
		}
		where, err := os.ReadFile(fmt.Sprintf("/proc/irq/%d/effective_affinity_list", n.IRQ))
		if err != nil {
			return unknown(name, "cat /proc/interrupts", "where interrupt %d ends cannot be told: %v", n.IRQ, err)
		}
		places[strings.TrimSpace(string(where))]++
	}
	return interruptsOn(name, l, places)
}

// interruptsOn returns the row for the number of interrupts that go to each processor.
func interruptsOn(name string, l loader.Link, places map[string]int) Probe {
	for where, n := range places {
		if len(places) == 1 && n > 1 {
			return hint(name, "spread them: /proc/irq/N/smp_affinity_list, or irqbalance", "all %d of %s end on processor %s", n, l.Port, where)
		}
	}
	if len(places) == 0 {
		return ok(name, "none that the kernel names")
	}
	return ok(name, "processors that take them: %d", len(places))
}

// probeProcessors compares the number of engines with the number of processors. An
// engine that spins uses a whole processor.
func probeProcessors(engines int) Probe {
	const name = "processors"
	have := runtime.GOMAXPROCS(0) // this number respects CPU affinity and the control group's limit
	if engines >= have && have > 1 || engines > have {
		return hint(name, "leave Spin at 0, or use fewer queues", "%d, engines %d: none is left for the program when they spin", have, engines)
	}
	return ok(name, "%d, engines %d", have, engines)
}
