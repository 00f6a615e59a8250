// Package loader loads the steering program and owns its maps: it attaches the
// program to a network interface, enters and removes flows, and fills the socket
// slots. It also tells the control plane about interfaces, routes and neighbours. The
// data path does not call it.
//
// An object works in the network namespace in which the calling OS thread was when the
// object was made, whichever thread uses it later.
package loader
