// Package property compares two QPs with a plain model of RDMA. The QPs talk through
// two engines over a simulated link. Random sequences of work requests must leave the
// same memory and the same completions in the same order as the model, whatever the
// link does to the packets.
//
// The outcome of a sequence does not depend on time. Each side has two kinds of memory.
// The peer's requests change and read the remote memory. The side's own requests read
// and change the local memory. The two directions are therefore independent. Within one
// direction everything happens in the order of posting if a request that depends on a
// Read waits for the Read by a fence (RFC 5040 §5.5). The generator sets these fences. The
// requests are Sends, Writes, Reads, atomic operations, Immediate Data (RFC 7306), and
// invalidations by the peer and by the side itself.
//
// TestSequences plays many sequences over each of several mild networks. TestWeather
// plays them over the networks of test/scenario.
package property
