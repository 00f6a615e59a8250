// Package ddp implements Direct Data Placement (RFC 5041). The package cuts messages
// into segments that fit FPDUs, parses the segments that arrive, and checks their
// order.
//
//	received: mpa.Deframer.Next -> ddp.Parse, Queue.Expect -> tpt.Check, copy   rx.go
//	sent:     rdmap -> Message.Next, Append -> mpa.Framer                       tx.go
//
// Package rdmap decides where payload is placed. A tagged segment names the place. The
// payload of an untagged segment belongs to the buffer at the head of the segment's
// queue.
package ddp
