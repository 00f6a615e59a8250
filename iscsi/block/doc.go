// Package block has the requests of block devices. Packages nbd and ublk take requests from
// a client or from the kernel, and a Volume executes them.
package block
