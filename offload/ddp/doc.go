// Package ddp implements Direct Data Placement (RFC 5041): it cuts messages into
// segments that fit FPDUs, parses the segments that arrive, and checks their order.
//
//	received: mpa.Deframer.Next -> ddp.Parse, Queue.Expect -> tpt.Check, copy   rx.go
//	sent:     rdmap -> Message.Next, Append -> mpa.Framer                       tx.go
//
// Package rdmap decides where payload is placed: a tagged segment names the place,
// and an untagged one belongs to the buffer at the head of its queue.
package ddp
