// Package verbs runs programs of the distribution that use libibverbs and librdmacm, with
// the two libraries of stag in place of rdma-core's. The programs are unmodified, and run as
// a user without rights. Every program is a row, and every row is a subtest.
//
//	namespace A                        namespace B
//	program, stag daemon, veth  -----  veth, stag daemon, program
//
// stage_test.go builds the libraries and the command, makes the namespaces and starts the
// daemons. row_test.go runs a row: the program's server in namespace A, the program's client
// in namespace B. known_test.go reads the table of rows that cannot pass yet from
// docs/verbs.md. Such a row runs as well, and fails the test if it passes: its line must then
// be taken from the table. Each other file has the rows of one family of programs.
//
// Each row runs over native XDP. Rows with kernel set also run over the kernel's TCP.
//
// A row must compare octets, or read what the program says. An exit code alone proves little.
//
// `make verbs-test` runs everything and prints a table (package test/interop/matrix). This
// command, as root, runs one row:
//
//	go test -tags verbs -v -run 'TestRping/xdp/rping_-S_4000' ./test/verbs
//
// STAG_LONG=1 takes larger numbers and the rows that take minutes. STAG_BRIEF=1 runs every program
// and each kind of row once, as in CI.
//
// perftest has faults of its own that show on a busy machine. Package test/excuse knows them by what
// perftest prints. Such a run is tried again, and no other.
package verbs
