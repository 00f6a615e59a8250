// Package interop tests stag against Linux in a guest under QEMU: the soft-iWARP driver
// siw, rping and perftest, and the initiators and targets of iSCSI. Every line of the
// matrix is a subtest.
//
//	namespace A                        namespace B
//	stag, AF_XDP on a veth end  -----  veth end, bridge, TAP  -----  guest: siw on eth0
//
// stage_test.go makes the namespaces. guest_test.go boots the guest and runs commands
// in it. stag_test.go runs the stag command. capture_test.go captures packets on the
// TAP. storage_test.go has what rows of iSCSI share. Each other file has one subject.
// image/prepare.sh makes the guest. guest/ has the scripts that run in it. cards_test.go
// has what rows with two interfaces share. device_test.go boots another guest for ublk,
// which image/trixie.sh makes. zero_test.go boots a third one, which image/zero.sh makes, with
// stag in zero-copy mode in it.
//
// # Adding a row
//
// A row is a call of row in a test, with its name, its peer and its operations. The test
// is the subject. A row begins with a guest that runs, and ends without sessions, jobs or
// changed settings in the guest. After a row that fails the guest is killed, and the next
// row boots another.
//
//	row(t, "reads of 4 KiB", about{"open-iscsi", "100 x 4096"}, func(r *rig) {
//		d := r.serve(carriers[1], diskSize)          // a file as disk, stag's target in namespace A
//		i := r.login()                               // open-iscsi in the guest
//		out := r.inGuest("fio --name=x --filename=" + i.device + " ...")
//		...                                          // compare what the peer says, and d.hash
//		i.logout()
//		d.stop()
//	})
//
// A row of storage calls rig.storage first, as rig.login does. The guest then has the
// programs and modules of image/disk.sh (add yours to its lists), modprobe, and /host, a
// directory of this machine (stage.shared): the scripts of guest/, and every file that a
// row puts there, such as the stag command. Command lines in the guest run for three minutes
// at most. start runs what takes longer: rows wait for its end, and for the end of stag
// commands, as long as octets move (package progress).
//
// A row must compare octets, or read what the peer says. An exit code alone proves nothing.
//
// `make interop` prepares the guest, runs all tests and prints a table (package
// matrix). This command, as root, runs one subject:
//
//	go test -tags interop -v -run TestRping ./test/interop
package interop
