// Package mpa frames DDP segments in TCP's octet stream and extracts them again (RFC 5044).
// Before that, it negotiates the parameters of the connection (RFC 6581).
//
//	Deframer   stream.Views -> Next -> a ULPDU, for DDP to place -> Done   rx.go, assemble.go
//	Framer     Begin -> DDP fills a ULPDU in place -> End                  tx.go
//	Offer      the initiator's Request, and what the Reply agrees to       initiator.go
//	Request    the responder's view of it, Accept and Reject               responder.go
//
// The handshake does no I/O. The owner of the socket reads and writes the frames. The owner
// reads the first 20 octets of a frame and gets the frame's length from FrameLength. The owner
// therefore never reads an octet behind the frame.
package mpa
