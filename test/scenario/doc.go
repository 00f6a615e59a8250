// Package scenario simulates networks that try to break TCP. A Weather is a network
// drawn at random from a seed: single losses and bursts, lost ACKs, reordering,
// duplicates, corruption, narrow and slow links, middleboxes. A Watch checks the two
// ends of a connection over that network. The package's own tests send plain octets.
// test/property sends RDMA.
package scenario
