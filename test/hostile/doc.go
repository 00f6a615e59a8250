// Package hostile tests the verbs against hand-made peers. These peers break every rule
// that a peer can break. The same tables run over the offloaded path and over the
// kernel port.
//
// rig_test.go makes an adapter. victim_test.go makes one QP of this adapter, with
// everything that the QP could lose. Each other file has one subject.
package hostile
