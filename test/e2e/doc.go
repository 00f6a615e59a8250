// Package e2e is the tests against the kernel: two namespaces, a veth pair, an
// interface of ours on one side, and a plain kernel host on the other.
//
// rig_test.go makes the stage, peer_test.go is the plain kernel-socket program
// that every test talks to, capture_test.go listens in. The other files are
// one subject each.
package e2e
