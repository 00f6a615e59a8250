// Package tap is how a capture sees what an engine receives and sends: rings
// that the engine fills and never waits for.
//
//	Engine.Step -> List.Rings -> Ring.Put      copies, or counts as lost
//	                             Ring.Take  -> the capture, on its own goroutine
//
// Nothing wakes the reader of a ring: that would cost the engine something. It
// looks from time to time.
package tap
