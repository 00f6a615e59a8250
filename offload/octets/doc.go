// Package octets is the stream of octets as an upper-layer protocol: a source
// that sends a pattern, a sink that demands it, an echo. Demonstration and
// tests move their data with it, over the engine and over the kernel port.
//
// Nothing here allocates once a connection runs.
package octets
