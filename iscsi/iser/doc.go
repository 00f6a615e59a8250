// Package iser carries iSCSI over RDMA (RFC 7145), both roles, as Linux speaks it. The RDMA
// connection comes first. Then every control PDU, from the first Login Request on, is one
// Send: the iSER header, the header of the PDU, and its data segment. There are no digests
// and no pad. Data moves by RDMA Write and RDMA Read of the target, so that Data-In and R2T
// do not exist on the wire.
//
//	channel.go    the control channel: a QP with its memory for control PDUs
//	message.go    a control PDU in a Send
//	converse.go   a login, or the questions of a discovery session
//	initiator.go  a Channel as the datamover of an initiator's commands
//	loan.go       the buffers of commands, lent to the target's QP
//	target.go     the same for a target; memory.go has the memory of its data
//	turns.go      whose turn it is to make a step
//
// A Channel belongs to one goroutine at a time. Only the Go channel of Done, and News,
// concern other goroutines.
package iser
