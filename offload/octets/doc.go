// Package octets contains upper-layer protocols that move plain octets: a source
// that sends a pattern, a sink that checks it, and an echo. The demonstration and
// the tests run them over the engine and over the kernel port.
//
// Nothing here allocates once a connection runs.
package octets
