// Package e2e has the tests against the kernel. A veth pair connects two namespaces.
// One side has an offloaded interface, and the other side is a plain kernel host.
//
// rig_test.go makes the set-up. peer_test.go is the plain kernel-socket program at the
// other end of every test. capture_test.go captures packets. Each other file has one
// subject.
package e2e
