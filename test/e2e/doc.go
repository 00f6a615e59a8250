// Package e2e has the tests against the kernel: two namespaces, a veth pair, an offloaded interface on one side, and
// a plain kernel host on the other.
//
// rig_test.go makes the set-up, peer_test.go is the plain kernel-socket program at the other end of every test,
// capture_test.go captures packets. The other files have one subject each.
package e2e
