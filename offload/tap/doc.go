// Package tap copies the packets of an engine to captures. The engine fills rings and
// never waits for their readers.
//
//	Engine.Step -> List.Rings -> Ring.Put      copies, or counts as lost
//	                             Ring.Take  -> the capture, on its own goroutine
//
// The engine does not wake the reader of a ring, because a wake-up costs too much. The
// reader polls the ring.
package tap
