// Package arch holds the architecture as tests: which package may import
// which, where unsafe, time and locks may appear, how long a file may be. It
// reads the source and needs nothing but it.
package arch
