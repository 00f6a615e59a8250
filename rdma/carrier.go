package rdma

import "github.com/stag-rdma/stag/loader/choice"

// Carrier is what carries connections between the wire and the verbs. The two ends of a
// connection may have different carriers.
type Carrier uint8

const (
	// CarrierAsNamed is the carrier that other fields of Config name: AF_XDP with Ports,
	// and the kernel's TCP with KernelPort. With For it means CarrierAuto.
	CarrierAsNamed Carrier = iota
	// CarrierAuto lets Open choose. Open looks at the driver, the mode of XDP, zero copy,
	// the capabilities and the memlock limit of the process, and at For. It chooses AF_XDP
	// for latency wherever that runs in native mode, and for throughput if all Ports have
	// zero copy. Otherwise it chooses the kernel's TCP, and then does not use the Ports.
	// Without Ports it always chooses the kernel's TCP. A Config with Groups, VLAN or
	// ZeroCopyRequire needs AF_XDP, so Open chooses AF_XDP.
	CarrierAuto
	// CarrierAFXDP is AF_XDP on the Ports. If it cannot be had, Open fails.
	CarrierAFXDP
	// CarrierKernel is the kernel's TCP, the kernel port. Ports may be named and are not
	// used.
	CarrierKernel
)

// String returns "auto", "afxdp" or "kernel", and "" for CarrierAsNamed.
func (c Carrier) String() string { return choice.Carrier(c).String() }

// ParseCarrier returns the Carrier called "auto", "afxdp" or "kernel".
func ParseCarrier(name string) (Carrier, error) {
	c, err := choice.ParseCarrier(name)
	return Carrier(c), err
}

// Wish is what connections shall be best at.
type Wish uint8

const (
	ForAnything   Wish = iota // no wish: CarrierAuto then prefers latency
	ForLatency                // short times, and many small messages
	ForThroughput             // many octets a second, and for each processor second
)

// String returns "latency" or "throughput", and "" for ForAnything.
func (w Wish) String() string { return choice.Wish(w).String() }

// ParseWish returns the Wish called "latency" or "throughput".
func ParseWish(name string) (Wish, error) {
	w, err := choice.ParseWish(name)
	return Wish(w), err
}

// Carrier returns what carries the adapter's connections, CarrierAFXDP or CarrierKernel,
// and why: one line without a full stop. With Config.Daemon it is CarrierAsNamed, and why
// says that the daemon decides: `stag show devices` has its reason.
func (a *Adapter) Carrier() (c Carrier, why string) {
	if a.through != nil {
		return CarrierAsNamed, "the daemon decides"
	}
	chosen := a.device.Choice()
	return Carrier(chosen.Carrier), chosen.Why
}
