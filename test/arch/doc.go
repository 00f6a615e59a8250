// Package arch tests the architecture: which package may import which, where unsafe, time
// and locks may appear, and how long a file may be. The tests only read the source.
package arch
