// Command sockets moves octets over the kernel's TCP with blocking calls. It is the yardstick
// of BenchmarkCompared, which takes the time of its runs.
//
//	sockets serve PORT SIZE          answers one client, and ends with it
//	sockets stream ADDRESS SIZE N    writes N messages and waits until they have arrived
//	sockets pong ADDRESS SIZE N      sends a message and waits for it to come back, N times
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sockets:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("%q: see the package's comment", args)
	}
	size, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	if args[0] == "serve" {
		return serve(":"+args[1], size)
	}
	n, err := strconv.Atoi(args[len(args)-1])
	if err != nil {
		return err
	}
	c, err := net.Dial("tcp", args[1])
	if err != nil {
		return err
	}
	defer c.Close()
	return drive(c, args[0] == "pong", make([]byte, size), n)
}

// drive sends n messages. The first octet of a stream is 0, and that of a ping-pong 1.
func drive(c net.Conn, pong bool, message []byte, n int) error {
	if pong {
		message[0] = 1
	}
	for range n {
		if _, err := c.Write(message); err != nil {
			return err
		}
		if pong {
			if _, err := io.ReadFull(c, message); err != nil {
				return err
			}
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c)
	return err
}

// serve answers one client as its first octet says.
func serve(address string, size int) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	for message := make([]byte, size); ; {
		_, err := io.ReadFull(c, message)
		if err == io.EOF {
			return nil
		}
		if err == nil && message[0] == 1 {
			_, err = c.Write(message)
		}
		if err != nil {
			return err
		}
	}
}
