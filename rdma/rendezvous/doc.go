// Package rendezvous connects two QPs that know each other by address and number, as QPs of
// InfiniBand are connected: each end names the address (GID) and the number of the QP at the
// other end (ibv_modify_qp to IBV_QPS_RTR), and neither listens. The ends come in any order.
// Both must be stag.
//
// An Exchange listens on a TCP port of its own for an adapter. Of the two ends, the one with
// the lower address, or the lower number at the same address, dials the Exchange of the other
// end, and names both QPs in the private data of its MPA Request. The other end waits for
// that Request. A Request that comes before its QP waits a while, and is then sent away. The
// end that dials tries again until its time is over.
package rendezvous
