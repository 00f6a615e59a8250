// Package ddp is Direct Data Placement (RFC 5041): it cuts messages into
// segments that fit FPDUs, and parses and numbers the segments that arrive.
//
//	received: mpa.Deframer.Next -> ddp.Parse, Queue.Expect -> tpt.Check, copy   rx.go
//	sent:     rdmap -> Message.Next, Append -> mpa.Framer                       tx.go
//
// Where payload goes is rdmap's business: a tagged segment says it itself, an
// untagged one belongs to the buffer at the head of its queue.
package ddp
