package rdmap

import (
	"fmt"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// sqOp is a row of the table of send work requests. The row says what a request may
// contain, and how the request's message begins or what the request does to the table.
// The zero row stands for an operation that a send queue does not know.
type sqOp struct {
	opcode    wire.Opcode    // opcode of the message
	solicited wire.Opcode    // opcode of the message if the request has the flag Solicited
	flags     work.SendFlags // flags that the request may have
	inline    bool           // the request may have inline data instead of elements
	elements  int            // largest number of elements; 0: the QP's limit, or none for a request without a message
	right     tpt.Rights     // rights that the elements' regions must have
	answered  bool           // the request completes only when the peer has answered
	access    work.Access    // flags that Access may have
	registers bool           // the QP must take registrations
	extension bool           // the peer must speak RFC 7306
	tail      bool           // the message opcode follows when the Write of begin has been sent
	exact     string         // not empty: the list must have exactly length octets; the text says so
	length    uint32
	atomic    func(work.Operands) wire.AtomicRequestFields // an atomic operation: operation and operands of the Atomic Request
	begin     func(*QP, *sqOp, *work.SendWQE)

	// table performs a request that has no message. The row then has no opcode and no
	// begin. table must not wait, lock or allocate. The request completes when the ticket
	// has passed.
	table func(*QP, *work.SendWQE) (tpt.Ticket, tpt.Fault)

	// wait makes the requests behind this one wait. The request has no message and does
	// not use the table. The row then has no opcode, no begin and no table.
	wait func(*QP, *work.SendWQE)
}

// known reports whether a send queue knows the operation of the row.
func (r *sqOp) known() bool { return r.begin != nil || !r.sends() }

// sends reports whether the operation of the row has a message.
func (r *sqOp) sends() bool { return r.table == nil && r.wait == nil }

const anyFlag = work.Fence | work.Signaled | work.Solicited

// tableFlags are the flags of a request without a message.
const tableFlags = work.Fence | work.Signaled

// windowAccess are the flags that a window may have.
const windowAccess = work.RemoteRead | work.RemoteWrite | work.RemoteAtomic | work.RemoteInvalidate | work.ZeroBased | work.OneTouch

// regionAccess are the flags that a region may have. The offsets of a region say where
// it begins, so that ZeroBased has no effect.
const regionAccess = windowAccess | work.LocalWrite | work.MWBind

// sqOps is indexed by operation.
var sqOps = [...]sqOp{
	work.WRWrite: {
		opcode: wire.OpWrite, flags: anyFlag &^ work.Solicited, inline: true, right: tpt.LocalRead, begin: (*QP).beginWrite,
	},
	work.WRSend: {
		opcode: wire.OpSend, solicited: wire.OpSendSE, flags: anyFlag, inline: true, right: tpt.LocalRead, begin: (*QP).beginSend,
	},
	work.WRRead: { // a Read Request has room for one STag (RFC 5040 §4.4)
		opcode: wire.OpReadRequest, flags: anyFlag &^ work.Solicited, elements: 1, right: tpt.LocalWrite, answered: true, begin: (*QP).beginRead,
	},
	work.WRLocalInvalidate: {flags: tableFlags, table: (*QP).localInvalidate},
	work.WRBindMW:          {flags: tableFlags, elements: 1, access: windowAccess, table: (*QP).bindWindow},
	work.WRSendInvalidate: {
		opcode: wire.OpSendInvalidate, solicited: wire.OpSendSEInvalidate, flags: anyFlag, inline: true, right: tpt.LocalRead, begin: (*QP).beginSend,
	},
	work.WRWriteImm: { // RFC 7306 §6: a Write, and Immediate Data behind it
		opcode: wire.OpImmediate, solicited: wire.OpImmediateSE, flags: anyFlag, inline: true, right: tpt.LocalRead,
		extension: true, tail: true, begin: (*QP).beginWriteImm,
	},
	work.WRSendImm: {
		opcode: wire.OpImmediate, solicited: wire.OpImmediateSE, flags: anyFlag, inline: true, right: tpt.LocalRead,
		extension: true, begin: (*QP).beginSendImm,
	},
	work.WRFetchAdd:          atomicOp(fetchAdd),
	work.WRMaskedFetchAdd:    atomicOp(maskedFetchAdd),
	work.WRCompareSwap:       atomicOp(compareSwap),
	work.WRMaskedCompareSwap: atomicOp(maskedCompareSwap),
	work.WRSwap:              atomicOp(swap),
	work.WRRegMR:             {flags: tableFlags, elements: 1, access: regionAccess, registers: true, table: (*QP).register},
	work.WRDelay:             {flags: tableFlags, wait: (*QP).beginDelay},
}

// atomicOp returns the row of an atomic operation (RFC 7306 §5).
func atomicOp(fields func(work.Operands) wire.AtomicRequestFields) sqOp {
	return sqOp{
		opcode: wire.OpAtomicRequest, flags: anyFlag &^ work.Solicited, elements: 1, right: tpt.LocalWrite, answered: true,
		extension: true, length: wire.AtomicLen, exact: "needs one element of 8 octets, which receives the old value",
		atomic: fields, begin: (*QP).beginAtomic,
	}
}

// sqOpOf returns the row of an operation, or the zero row if it has none.
func sqOpOf(o work.WROp) *sqOp {
	if int(o) < len(sqOps) {
		return &sqOps[o]
	}
	return &noRequest
}

var noRequest sqOp

// message returns the opcode of the message of a request with the flags f.
func (r *sqOp) message(f work.SendFlags) wire.Opcode {
	if f&work.Solicited != 0 {
		return r.solicited
	}
	return r.opcode
}

// MaxMessage is the length of the longest message in octets.
const MaxMessage = 1<<32 - 1

// checkSend returns an error if a work request is malformed. The request's access to
// its memory is checked later, when the request starts.
func (c *Config) checkSend(wr *work.SendWR) error {
	row, n := sqOpOf(wr.Op), len(wr.SGL)
	switch {
	case wr.Flags&^anyFlag != 0:
		return fmt.Errorf("flags %#x: leave the unknown ones out", uint8(wr.Flags))
	case n > c.MaxSGE:
		return fmt.Errorf("a list of %d elements: this QP takes %d (MaxSGE)", n, c.MaxSGE)
	case work.Length(wr.SGL) > MaxMessage:
		return fmt.Errorf("%d octets: a message has at most %d", work.Length(wr.SGL), MaxMessage)
	case !row.known():
		return fmt.Errorf("%v is no operation of a send queue", wr.Op)
	case row.registers && !c.Registers:
		return fmt.Errorf("%v: this QP takes no registrations (RegMR)", wr.Op)
	case !row.sends() && (n > row.elements || len(wr.Inline) != 0):
		return fmt.Errorf("%v sends no octets: leave Inline out, and give at most %d elements", wr.Op, row.elements)
	case row.wait != nil && (wr.Delay < 0 || wr.Delay > MaxDelay):
		return fmt.Errorf("%v of %v: choose 0 to %v", wr.Op, wr.Delay, MaxDelay)
	case wr.Access&^row.access != 0:
		return fmt.Errorf("%v with access %v: leave %v out", wr.Op, wr.Access, wr.Access&^row.access)
	case wr.Access.Check() != nil:
		return fmt.Errorf("%v with access %v: %w", wr.Op, wr.Access, wr.Access.Check())
	case len(wr.Inline) != 0 && !row.inline:
		return fmt.Errorf("%v has no data of its own: leave Inline out", wr.Op)
	case wr.Flags&^row.flags != 0:
		return fmt.Errorf("%v completes nothing at the peer: leave Solicited out", wr.Op)
	case row.elements != 0 && n > row.elements:
		return fmt.Errorf("%v into %d elements: over iWARP it takes one (for length 0 none)", wr.Op, n)
	case len(wr.Inline) != 0 && n != 0:
		return fmt.Errorf("data inline and in a list: choose one")
	case len(wr.Inline) > c.MaxInline:
		return fmt.Errorf("%d octets inline: this QP takes %d (MaxInline)", len(wr.Inline), c.MaxInline)
	case row.extension:
		return c.checkExtension(row, wr)
	}
	return nil
}

// checkExtension is the part of checkSend for requests of RFC 7306.
func (c *Config) checkExtension(row *sqOp, wr *work.SendWR) error {
	switch {
	case row.exact != "" && work.Length(wr.SGL) != uint64(row.length):
		return fmt.Errorf("%v %s", wr.Op, row.exact)
	case len(wr.Inline) > work.MaxInlineImm:
		return fmt.Errorf("%d octets inline: with Immediate Data at most %d, otherwise use a list", len(wr.Inline), work.MaxInlineImm)
	case !work.Room(wr.Op, c.MaxSGE, c.MaxInline):
		return fmt.Errorf("%v needs more room than this QP's requests have: create the QP with MaxSGE 3 or MaxInline 48", wr.Op)
	}
	return nil
}

// sound reports whether a request in the queue passes the checks of checkSend. The
// poster may not have called CheckSend.
func (c *Config) sound(row *sqOp, w *work.SendWQE) bool {
	switch {
	case !row.known() || w.Flags&^row.flags != 0 || w.Excess:
		return false
	case row.wait != nil && w.Remote > uint64(MaxDelay):
		return false
	case row.registers && !c.Registers:
		return false
	case !row.sends():
		return !w.Inline && int(w.SGEs) <= row.elements
	case row.extension && (row.exact != "" && w.Length != row.length || !work.Room(w.Op, c.MaxSGE, c.MaxInline)):
		return false
	case w.Inline:
		return row.inline && w.SGEs == 0 && int(w.Length) <= c.MaxInline
	case row.elements != 0 && int(w.SGEs) > row.elements:
		return false
	}
	return int(w.SGEs) <= c.MaxSGE
}
