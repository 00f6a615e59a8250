// Package octets contains upper-layer protocols that move plain octets: a source that
// sends a pattern, a sink that checks the pattern, and an echo. The demonstration and
// the tests run these protocols over the engine and over the kernel port.
//
// The protocols allocate nothing once a connection runs.
package octets
