// Package scenario is networks that try to break TCP: weather drawn by chance
// from a seed (losses alone and in bursts, lost ACKs, reordering, duplicates,
// corruption, narrow and slow links, middleboxes), and a watch over the two
// connections that have to live with it. Its own tests send plain octets
// through it; test/property sends RDMA.
package scenario
