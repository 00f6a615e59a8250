package rdma

import "github.com/stag-rdma/stag/offload/wire"

// Extensions is a set of extensions of the protocols, for connections with stag at both
// ends. No RFC has them. Each end names those that it wants in ConnParams.Extensions.
type Extensions = wire.Extensions

const (
	// ExtAlignedFPDUs promises the peer that each TCP segment with data begins with an
	// FPDU, unless every octet before it has been acknowledged. The peer can then place
	// the payload of segments that arrive out of order at once.
	ExtAlignedFPDUs = wire.ExtAlignedFPDUs
)

// supported are the extensions that this version of stag has.
const supported = ExtAlignedFPDUs
