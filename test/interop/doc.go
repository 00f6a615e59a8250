// Package interop tests stag against Linux in a guest under QEMU: the soft-iWARP driver
// siw, rping and perftest. Every line of the matrix is a subtest.
//
//	namespace A                        namespace B
//	stag, AF_XDP on a veth end  -----  veth end, bridge, TAP  -----  guest: siw on eth0
//
// stage_test.go makes the namespaces. guest_test.go boots the guest and runs commands
// in it. stag_test.go runs the stag command. capture_test.go captures packets on the
// TAP. Each other file has one subject. image/prepare.sh makes the guest.
//
// `make interop` prepares the guest, runs all tests and prints a table (package
// matrix). This command, as root, runs one subject:
//
//	go test -tags interop -v -run TestRping ./test/interop
package interop
