// Package nic is one network interface with everything that stag adds to it: the
// steering program, AF_XDP sockets, an engine for every queue, and the connections that
// were taken over from the kernel. The package combines loader, afxdp, offload/engine
// and offload/handoff. The package adds the life of a flow (take.go, flow.go, reap.go)
// and of the flow's next hop (hops.go, watch.go). The interfaces of one adapter share
// state (set.go, maps.go, grow.go), and a flow can move between them (move.go, shift.go,
// follow.go).
//
//	n, err := nic.Open(nic.Config{Link: "eth1"})
//	conn, err := net.Dial("tcp", "192.0.2.2:5001") // routed through eth1
//	flow, err := n.Take(ctx, conn.(*net.TCPConn), ulp, nic.DefaultOptions)
//	<-flow.Done()
package nic
