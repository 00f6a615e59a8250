// Package engine joins a port's frames to the flows that were taken over from
// the kernel, and runs their TCP and their upper layers.
//
// One received segment, one name per step:
//
//	port.Receive -> Engine.receive -> Engine.input    parse, find the flow   input.go
//	             -> tcp.Conn.Receive                  order, acknowledge     offload/tcp
//	             -> ULP.Receive (Views, Consume)      use                    stream seam
//	             -> port.Recycle                      the frame goes home    engine.go
//
// and one sent segment:
//
//	Engine.Ring -> Engine.serve -> ULP.Transmit (Emit)  write payload       engine.go
//	            -> tcp.Conn.Transmit                    what may go now     offload/tcp
//	            -> flow.Send -> port.Send, Flush        headers, the ring   output.go
//
// Captures get a packet as it leaves port.Receive, and as it enters port.Send
// (capture.go, offload/tap).
//
// A flow's life is Park, Install, any number of steps, and one or two Ends (control.go,
// end.go). All of this runs on the goroutine that holds the queue's token: Run's
// (run.go) or a visitor's (visit.go). Other goroutines reach it through doorbells
// (doorbell.go), commands (command.go) and, between engines of one adapter, rings of
// frames (mail.go).
//
// Part of the API of stag: Counters. Package rdma has an alias of it.
package engine
