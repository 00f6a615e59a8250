// Package suite runs rdma-core's own tests of devices, which Debian packages with
// python3-pyverbs, over the libraries of stag and a daemon on the kernel's TCP.
//
// testdata/passes.txt lists the tests that pass. A test of the list that is skipped or fails,
// or a test that passes and is not in the list, fails here. The tests that need what iWARP
// does not have are in the table leftOut, and do not run.
//
//	go test -tags verbs -v ./test/verbs/suite
package suite
