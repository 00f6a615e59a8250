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
)

// metadata is the drivers known to leave room in front of a packet for the
// steering record (those that prepare their buffers with valid metadata). In
// generic mode the kernel does, for all.
var metadata = map[string]bool{
	"veth": true, "i40e": true, "ice": true, "igb": true, "igc": true, "ixgbe": true,
	"mlx5_core": true, "nfp": true, "virtio_net": true, "bnxt_en": true,
}

// probeMetadata is not a requirement: without records the engine parses.
func probeMetadata(l loader.Link) Probe {
	const name = "metadata"
	if metadata[l.Driver] {
		return ok(name, "driver %s has room for steering records", l.Driver)
	}
	return unknown(name, "with stag running, compare the counters steered and steered_bare: stag show",
		"not known of driver %q; without it the engine parses each packet", l.Driver)
}

// zeroCopy is the drivers whose documentation promises zero copy, for kernels
// that do not say it themselves.
var zeroCopy = []string{"i40e", "ice", "igb", "igc", "ixgbe", "mlx5_core", "stmmac", "nfp", "virtio_net", "gve"}

// probeZeroCopy asks the kernel what the driver offers. Whether it works shows
// when a queue is opened.
func probeZeroCopy(l loader.Link, generic bool) Probe {
	const name = "zero copy"
	if generic {
		return ok(name, "never in generic mode")
	}
	features, err := featuresOf(l)
	return offersZeroCopy(name, l, features, err)
}

// askZeroCopy makes known what a kernel does not tell.
const askZeroCopy = "use Linux 6.3 or later, which tells it; or, with stag running: stag show devices"

// offersZeroCopy judges what the kernel has said of the driver, or has not.
func offersZeroCopy(name string, l loader.Link, features xdpFeatures, err error) Probe {
	switch {
	case err != nil && slices.Contains(zeroCopy, l.Driver):
		return unknown(name, askZeroCopy, "driver %s is said to have it; this kernel does not tell", l.Driver)
	case err != nil:
		return unknown(name, askZeroCopy, "not known of driver %q, and this kernel does not tell", l.Driver)
	case features&xdpZeroCopy != 0:
		return ok(name, "driver %s offers it", l.Driver)
	}
	return ok(name, "driver %s has none: the kernel copies each packet once", l.Driver)
}

// probeExpectation says what kind of speed there will be. Numbers are in the
// README, with the conditions of their measurement.
func probeExpectation(l loader.Link, generic bool) Probe {
	const name = "what to expect"
	features, err := featuresOf(l)
	switch {
	case generic:
		return hint(name, "native mode, where the driver has it", "generic mode: each packet is the kernel's first, and copied then: for tests, not for speed")
	case l.Driver == "veth":
		return ok(name, "veth: about the kernel's TCP at MTU 1500, more with larger ones (README, Numbers); no measure of a network card")
	case err != nil:
		return unknown(name, askZeroCopy, "one copy by the kernel for each packet, or none: this kernel does not tell")
	case features&xdpZeroCopy != 0:
		return ok(name, "the driver's speed; not measured on this hardware")
	}
	return ok(name, "one copy by the kernel for each packet; not measured on this hardware")
}

// customs is what is said of drivers, in their documentation and by those who
// use XDP with them. None of it was tried here.
var customs = map[string]struct{ what, fix string }{
	"ena":       {"takes XDP with an MTU up to about 3498 and at most half of its channels", "ethtool -l IFACE; ethtool -L IFACE combined N, with N half of the maximum"},
	"ixgbe":     {"resets the link when a program is attached, for seconds", "wait until the link is up again"},
	"ice":       {"received nothing in zero copy on old kernels", "if nothing comes, switch zero copy off"},
	"i40e":      {"sends to another interface only where that has a program, too", "nothing: stag sends by sockets"},
	"mlx5_core": {"has, in some versions, its zero-copy queues numbered above its channels", "if nothing comes, switch zero copy off"},
	"virtio_net": {"wants a pair of queues more for each processor, and receive offloads off, which the host decides",
		"let the host give it queues (mq=on, queues=N), and guest_csum=off,guest_tso4=off,guest_tso6=off"},
	"e1000":  {"has no native XDP", "ask for generic mode (--generic)"},
	"e1000e": {"has no native XDP", "ask for generic mode (--generic)"},
}

// probeCustoms repeats what is said of the driver, and marks it so.
func probeCustoms(l loader.Link) Probe {
	const name = "driver's customs"
	c, known := customs[l.Driver]
	if !known {
		return ok(name, "nothing particular is said of driver %q", l.Driver)
	}
	return hint(name, strings.ReplaceAll(c.fix, "IFACE", l.Port), "not tried here: driver %s is said to be one that %s", l.Driver, c.what)
}

// probeNAPI: NAPI in threads lets two processors work on one direction, and
// costs a message that comes alone the time in which a thread is woken.
func probeNAPI(l loader.Link) Probe {
	const name = "NAPI"
	list, err := napisOf(l)
	if err != nil || len(list) == 0 {
		return probeNAPISysfs(name, l)
	}
	return judgeNAPI(name, l, !slices.ContainsFunc(list, func(n napi) bool { return !n.threaded }))
}

// judgeNAPI says what the setting is good for, and how to have the other.
func judgeNAPI(name string, l loader.Link, threaded bool) Probe {
	if threaded {
		return hint(name, "for latency: stag load --tune=latency "+l.Port, "in threads, which is for throughput: a small message waits until its thread is woken")
	}
	return hint(name, "for throughput: stag load --tune=throughput "+l.Port, "not in threads, which is for latency: large transfers can be faster with threads")
}

// probeNAPISysfs is for kernels, and interfaces, that name no NAPI.
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

// probeInterrupts: queues whose interrupts all end on one processor share it.
func probeInterrupts(l loader.Link) Probe {
	const name = "interrupts"
	list, err := napisOf(l)
	if err != nil {
		return unknown(name, "use Linux 6.8 or later, which tells it, or read /proc/interrupts", "this kernel does not tell")
	}
	places := map[string]int{}
	for _, n := range list {
		if n.irq == 0 {
			continue
		}
		where, err := os.ReadFile(fmt.Sprintf("/proc/irq/%d/effective_affinity_list", n.irq))
		if err != nil {
			return unknown(name, "cat /proc/interrupts", "where interrupt %d ends cannot be told: %v", n.irq, err)
		}
		places[strings.TrimSpace(string(where))]++
	}
	return interruptsOn(name, l, places)
}

// interruptsOn judges how many interrupts end on which processors.
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

// probeProcessors: engines that spin take a processor each.
func probeProcessors(engines int) Probe {
	const name = "processors"
	have := runtime.GOMAXPROCS(0) // as affinity and control group permit
	if engines >= have && have > 1 || engines > have {
		return hint(name, "leave Spin at 0, or use fewer queues", "%d, engines %d: none is left for the program when they spin", have, engines)
	}
	return ok(name, "%d, engines %d", have, engines)
}
