// Package loader loads the steering program and owns its maps. The package attaches the
// program to a network interface, inserts and deletes flows, and puts sockets into the
// map of sockets. It also gives the control plane information about interfaces, routes
// and neighbours. The data path does not call this package.
//
// An object belongs to the network namespace that the calling OS thread is in when the
// object is made. It stays in that namespace, whichever thread uses the object later.
package loader
