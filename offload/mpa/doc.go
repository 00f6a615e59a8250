// Package mpa puts the messages of DDP into TCP's octet stream and takes them
// out again (RFC 5044), and agrees beforehand on how (RFC 6581).
//
//	Deframer   stream.Views -> Next -> a ULPDU, for DDP to place -> Done   rx.go, assemble.go
//	Framer     Begin -> DDP fills a ULPDU in place -> End                  tx.go
//	Offer      the initiator's Request, and what the Reply agrees to       initiator.go
//	Request    the responder's view of it, Accept and Reject               responder.go
//
// The handshake is pure: whoever owns the socket reads and writes the frames.
// It asks FrameLength how long a frame is, having read its first 20 octets, so
// that it never reads an octet that follows the frame.
package mpa
