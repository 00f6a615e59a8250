package rdma

import "github.com/stag-rdma/stag/offload/wire"

// Extensions is a set of extensions of the protocols, for connections with stag at both
// ends. Each end names those that it wants in ConnParams.Extensions. How the ends agree is
// a matter of stag: no RFC has it.
type Extensions = wire.Extensions

const (
	// ExtAlignedFPDUs promises the peer that each TCP segment with data begins with an
	// FPDU, unless every octet before it has been acknowledged. If FPDUs have a CRC, an
	// engine then places Writes and Read Responses that arrive out of order at once, so
	// that a later Write can be visible before an earlier one (RFC 5040 §5.5). Messages
	// are delivered and requests complete in order as ever. Use it only if no middlebox
	// on the path cuts segments anew.
	ExtAlignedFPDUs = wire.ExtAlignedFPDUs

	// ExtRFC7306 lets both ends post the operations of RFC 7306: atomic operations, and
	// Writes and Sends with Immediate. RFC 7306 itself has no way to agree on them (§1.1).
	ExtRFC7306 = wire.ExtRFC7306

	// ExtImmediate makes Immediate Data what it is in InfiniBand and in libibverbs. Ask for
	// it together with ExtRFC7306. A Send with Immediate has octets, which go into the same
	// receive as its Immediate Data. The completion of a Write with Immediate has the length
	// of the Write. Immediate Data has 32 bits, and a post of more is refused
	// (ErrImmediate). No RFC defines the messages.
	ExtImmediate = wire.ExtImmediate

	// ExtLongFPDUs makes FPDUs of up to 16 KiB of payload over the kernel's TCP, whatever the
	// MTU is. Fewer FPDUs cost less processor time. RFC 5044 §4.5 wants each FPDU to fit into a
	// TCP segment, so that other peers must not get longer ones. It is in use only if both ends
	// want it and both run the connection over the kernel port.
	ExtLongFPDUs = wire.ExtLongFPDUs
)

// supported are the extensions that this version of stag has.
const supported = ExtAlignedFPDUs | ExtRFC7306 | ExtImmediate | ExtLongFPDUs

// unfit returns the extensions that a connection cannot use because of what carries it. The
// kernel decides where segments end, so that the kernel port cannot keep the promise of
// ExtAlignedFPDUs. An engine sends each FPDU within a segment, and places segments that
// arrive out of order.
func unfit(offloaded bool) Extensions {
	if offloaded {
		return ExtLongFPDUs
	}
	return ExtAlignedFPDUs
}

// longEmit is the length of the longest FPDU with ExtLongFPDUs: 16 KiB of payload in an
// untagged segment. A longer FPDU is hardly cheaper, and more often arrives in parts, which the
// receiver must first put together.
const longEmit = wire.FPDUHeadLen + wire.UntaggedLen + 16<<10 + wire.CRCLen
