//go:build race

package rdma

// racing: the race detector is on, under which system calls allocate.
const racing = true
