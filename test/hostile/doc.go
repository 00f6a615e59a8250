// Package hostile is tests of the verbs against peers made by hand, which break
// every rule that a peer can break: over the offloaded path and over the kernel
// port, by the same tables.
//
// rig_test.go makes an adapter, victim_test.go one QP of it with everything
// that it could lose. The other files are one subject each.
package hostile
