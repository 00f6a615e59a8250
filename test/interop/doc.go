// Package interop is stag against Linux: its soft-iWARP driver siw, rping and
// perftest, in a guest under QEMU. Every line of the matrix is a subtest.
//
//	namespace A                        namespace B
//	stag, AF_XDP on a veth end  -----  veth end, bridge, TAP  -----  guest: siw on eth0
//
// stage_test.go makes the stage, guest_test.go boots the guest and runs commands
// in it, stag_test.go runs the stag command, capture_test.go listens in on the
// TAP. The other files are one subject each. image/prepare.sh makes the guest.
//
// `make interop` prepares, runs all of it and prints a table (package matrix). A
// subject alone, as root:
//
//	go test -tags interop -v -run TestRping ./test/interop
package interop
