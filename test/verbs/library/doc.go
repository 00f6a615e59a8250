// Package library tests the two C libraries of rdma/verbs by themselves: that they have every
// name that programs import, that programs load with them, and that they follow the rules of
// the rings. No daemon runs. Package test/verbs runs programs over a daemon.
//
// The libraries are built for each run. This takes make, a C compiler, and the headers of
// rdma-core (libibverbs-dev and librdmacm-dev of Debian).
//
// testdata/rdma-core.names has what the libraries of all releases of rdma-core export.
// testdata/debian13.names has what the packages of Debian 13 import. The importers of the
// machine that runs the tests are looked up each time.
package library
