// Package hostile tests the verbs against hand-made peers, which break every rule that a peer can break, over the
// offloaded path and over the kernel port, with the same tables.
//
// rig_test.go makes an adapter, victim_test.go one QP of it with everything that it could lose. The other files have
// one subject each.
package hostile
