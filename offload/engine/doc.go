// Package engine connects a port's frames to the flows that were taken over from the
// kernel. The package runs their TCP and upper layers.
//
// One received segment, one name per step:
//
//	port.Receive -> Engine.receive -> Engine.input    parse, find the flow   input.go
//	             -> tcp.Conn.Receive                  order, acknowledge     offload/tcp
//	             -> ULP.Receive (Views, Consume)      use                    stream seam
//	             -> port.Recycle                      return the frame       engine.go
//
// One sent segment:
//
//	Engine.Ring -> Engine.serve -> ULP.Transmit (Emit)  write payload       engine.go
//	            -> tcp.Conn.Transmit                    what may go now     offload/tcp
//	            -> flow.Send -> port.Send, Flush        headers, the ring   output.go
//
// Captures get a packet when it leaves port.Receive, and when it enters port.Send
// (capture.go, offload/tap).
//
// The life of a flow is Park, Install, any number of steps, and one or two Ends
// (control.go, end.go). All of it runs on the goroutine that holds the queue's token:
// that of Run (run.go) or of a visitor (visit.go). Other goroutines use doorbells
// (doorbell.go), commands (command.go) and, between engines of one adapter, rings of
// frames (mail.go).
//
// Part of the API of stag: Counters. Package rdma has an alias of it.
package engine
