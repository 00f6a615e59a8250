// Package health decides which ports of a group may be used. A Group is a state machine
// without I/O: the caller reports what it sees, sends the probes that the Group asks
// for, and acts on the transitions.
//
// The Group suspects a port when it sees a sign of a fault. A port has failed when its
// carrier or its interface is gone, or when a probe proves a local fault: a target that
// has answered through the port no longer does, and answers through another port. A
// target that answers through no port has failed itself, or the network has: no port
// fails for that.
package health
