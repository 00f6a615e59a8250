// Package carrier opens adapters over the carrier that a command line asks for, and says
// what was chosen.
package carrier

import (
	"fmt"
	"io"

	"github.com/stag-rdma/stag/rdma"
)

// Asked is what a command line says of the carrier: --carrier and --for.
type Asked struct {
	Carrier rdma.Carrier
	For     rdma.Wish
	Chosen  io.Writer // gets a line if there was a choice; nil: none
}

// Chooses reports whether Open chooses the carrier.
func (a Asked) Chooses() bool {
	return a.Carrier == rdma.CarrierAuto || a.Carrier == rdma.CarrierAsNamed && a.For != rdma.ForAnything
}

// Given reports whether the command line says anything.
func (a Asked) Given() bool { return a.Carrier != rdma.CarrierAsNamed || a.For != rdma.ForAnything }

// Open opens an adapter. If there was a choice, Open says what was chosen, and why.
func (a Asked) Open(c rdma.Config) (*rdma.Adapter, error) {
	c.Carrier, c.For = a.Carrier, a.For
	adapter, err := rdma.Open(c)
	if err != nil || a.Chosen == nil || !a.Chooses() {
		return adapter, err
	}
	chosen, why := adapter.Carrier()
	fmt.Fprintf(a.Chosen, "carrier %v: %s\n", chosen, why)
	return adapter, nil
}

// Fields are the fields of a result in JSON that say what carried the connections.
type Fields struct {
	Carrier string `json:"carrier,omitempty"`     // afxdp or kernel; "" with a daemon, and if no adapter was opened
	Why     string `json:"carrier_why,omitempty"` // why this carrier is used
}

// Of returns the Fields of an adapter.
func Of(a *rdma.Adapter) Fields {
	c, why := a.Carrier()
	if c == rdma.CarrierAsNamed {
		return Fields{}
	}
	return Fields{c.String(), why}
}
