// Package loader loads the steering program and owns its maps: it attaches the
// program to a network interface, enters and removes flows, fills the socket
// slots, and answers what else the control plane must know about interfaces,
// routes and neighbours. The data path never comes here.
//
// Everything works in the network namespace that the calling OS thread is in
// when the object is made, and stays bound to it whichever thread uses it
// later.
package loader
