// Package kernelport runs an upper-layer protocol over an ordinary kernel socket. It
// implements stream.Stream for hosts without XDP, or without the privilege to use it. A
// connection over the kernel port is slower than one of the engine, and needs no
// privilege.
//
//	c, err := kernelport.New(conn, ulp, kernelport.Config{})
//	conn.Close() // c has its own descriptor
//	err = c.Run(ctx)
//
// The path of received octets: socket, loop.go step, receive ring, ULP. The path of
// emitted octets: ULP, send buffer, loop.go flush, socket.
package kernelport
