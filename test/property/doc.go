// Package property compares two QPs that talk through two engines over a
// simulated link with a plain model of what RDMA means: random sequences of
// work requests must leave the same memory and the same completions, in the
// same order, whatever the link does to the packets.
//
// A sequence is made so that its outcome does not depend on time. Each side has
// two kinds of memory: what its peer's requests change and read (remote), and
// what its own requests read and change (local). So the two directions have
// nothing to do with each other, and within one everything happens in the order
// of posting, provided that what depends on a Read waits for it by a fence (RFC
// 5040 §5.5), which the generator sees to.
//
// TestSequences plays them over mild networks, many in each; TestWeather over
// those of test/scenario.
package property
