// Package examples tests the example programs in the directories below it:
//
//   - kv: a key-value store whose readers use RDMA Reads
//   - filecopy: copies a file by RDMA Writes
//   - stream: a net.Conn over RDMA messages
//
// Each program uses package rdma and no other package of the module, and is meant to be
// read from main.go on.
package examples
