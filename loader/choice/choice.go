// Package choice chooses what carries the connections of an adapter: AF_XDP, or the
// kernel's TCP (the kernel port). The choice is a pure function of what the program asks
// for and of facts about the process and the interfaces. It says why in one sentence.
//
// The rule comes from measurements. Without zero copy, AF_XDP pays a copy and a driver
// call for each packet, and its program takes segmentation offload from the interface: the
// kernel's TCP then moves more octets for each processor second. AF_XDP has the lower
// latency and the higher rate of small messages on any driver, and a card with zero copy
// does not have these costs.
package choice

import (
	"fmt"
	"slices"
	"strings"
)

// Carrier is what carries connections.
type Carrier uint8

const (
	AsNamed  Carrier = iota // what the other settings name: AF_XDP with interfaces, else the kernel's TCP; with a Wish, as Auto
	Auto                    // Choose decides
	AFXDP                   // AF_XDP, or an error
	Kernel                  // the kernel's TCP
	Carriers                // number of carriers
)

// carrierNames are the values of --carrier.
var carrierNames = [Carriers]string{"", "auto", "afxdp", "kernel"}

// String returns the value of --carrier, and "" for AsNamed.
func (c Carrier) String() string {
	if c >= Carriers {
		return fmt.Sprintf("Carrier(%d)", uint8(c))
	}
	return carrierNames[c]
}

// Wish is what connections shall be best at.
type Wish uint8

const (
	NoWish     Wish = iota
	Latency         // short times and many small messages
	Throughput      // octets a second, and for each processor second
	Wishes          // number of wishes
)

// wishNames are the values of --for.
var wishNames = [Wishes]string{"", "latency", "throughput"}

// String returns the value of --for, and "" for NoWish.
func (w Wish) String() string {
	if w >= Wishes {
		return fmt.Sprintf("Wish(%d)", uint8(w))
	}
	return wishNames[w]
}

// ParseCarrier returns the Carrier of a value of --carrier.
func ParseCarrier(name string) (Carrier, error) {
	if i := slices.Index(carrierNames[Auto:], name); i >= 0 {
		return Auto + Carrier(i), nil
	}
	return 0, fmt.Errorf("%q: choose %s", name, strings.Join(carrierNames[Auto:], ", "))
}

// ParseWish returns the Wish of a value of --for.
func ParseWish(name string) (Wish, error) {
	if i := slices.Index(wishNames[Latency:], name); i >= 0 {
		return Latency + Wish(i), nil
	}
	return 0, fmt.Errorf("%q: choose %s", name, strings.Join(wishNames[Latency:], " or "))
}

// Request is what a program asks for.
type Request struct {
	Carrier Carrier
	Wish    Wish
	Only    string // what the program asks for that only AF_XDP can do; "": nothing
	Generic bool   // the program asks for XDP in generic mode
	Copy    bool   // the program does not want zero copy
}

// Chooses reports whether the choice depends on facts.
func (r Request) Chooses() bool {
	return r.Carrier == Auto || r.Carrier == AsNamed && r.Wish != NoWish
}

// Choice is AFXDP or Kernel, and the reason.
type Choice struct {
	Carrier Carrier
	Why     string // one line, without a full stop
}

// names are the names of carriers in texts for people.
var names = map[Carrier]string{AFXDP: "AF_XDP", Kernel: "kernel port"}

// String returns the sentence that says what was chosen, and why.
func (c Choice) String() string {
	if c.Why == "" {
		return names[c.Carrier]
	}
	return names[c.Carrier] + ": " + c.Why
}

// askedFor is the reason if there was nothing to choose.
const askedFor = "it is asked for by name"

// Choose chooses. ports are the facts about the interfaces that the program names.
// Choose does not fall back: Opening AF_XDP may still fail, and the error is the
// program's.
func (r Request) Choose(rights Rights, ports []Port) Choice {
	switch {
	case r.Carrier == Kernel, r.Carrier == AsNamed && len(ports) == 0 && r.Wish == NoWish:
		return Choice{Kernel, askedFor}
	case r.Carrier == AFXDP:
		return Choice{AFXDP, askedFor}
	case len(ports) == 0:
		return Choice{Kernel, "no interface is named"}
	case !r.Chooses():
		return Choice{AFXDP, "the interface is named, and no wish is said" + r.better(ports)}
	case r.Only != "":
		return Choice{AFXDP, r.Only}
	}
	if why := rights.obstacle(); why != "" {
		return Choice{Kernel, why}
	}
	for _, p := range ports {
		if why := p.obstacle(r.Generic); why != "" {
			return Choice{Kernel, why}
		}
	}
	return r.weigh(ports)
}

// weigh chooses where both carriers work.
func (r Request) weigh(ports []Port) Choice {
	copies := r.copying(ports)
	switch {
	case copies == nil && r.Wish == Latency:
		return Choice{AFXDP, "it has the lower latency, and " + ports[0].driver() + " has zero copy"}
	case copies == nil:
		return Choice{AFXDP, ports[0].driver() + " has zero copy"}
	case r.Wish == Throughput:
		return Choice{Kernel, copies.noZeroCopy(r.Copy) + ", so the kernel's TCP moves more for each processor second"}
	case r.Wish == Latency:
		return Choice{AFXDP, "it has the lower latency and the higher message rate; " + copies.noZeroCopy(r.Copy) + ", which costs throughput"}
	}
	return Choice{AFXDP, "no wish is said, so latency and message rate count" + r.better(ports)}
}

// better says when the kernel port is the better choice.
func (r Request) better(ports []Port) string {
	if p := r.copying(ports); p != nil {
		return "; " + p.noZeroCopy(r.Copy) + ", so for throughput the kernel port is better (--for throughput)"
	}
	return ""
}

// copying returns the first port whose packets are copied, or nil.
func (r Request) copying(ports []Port) *Port {
	for i := range ports {
		if r.Copy || ports[i].mode(r.Generic) == generic || ports[i].ZeroCopy != Yes {
			return &ports[i]
		}
	}
	return nil
}
