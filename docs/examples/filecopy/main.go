// Command filecopy copies a file to another machine. The sender writes the octets into
// memory of the receiver by RDMA Writes, a chunk at a time. After each chunk the sender
// sends a message that the chunk is complete. The receiver writes the chunk to its file,
// and sends a message that the memory is free again. Several chunks are outstanding at a
// time.
//
//	go run ./docs/examples/filecopy receive 127.0.0.1:7471 copy.bin
//	go run ./docs/examples/filecopy send 127.0.0.1:7471 original.bin
//
// With -i IFACE, or -i IFACE,IFACE, the command uses network interfaces, as root.
// Without -i it uses the kernel's TCP, and needs no rights.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/stag-rdma/stag/rdma"
)

const usage = "usage: filecopy [-i IFACE,...] receive ADDR FILE | send ADDR FILE"

// Both ends have the same constants. The receiver's memory has places for chunks of
// chunkLen octets. The constant chunks is the number of places. Chunk n of the file
// goes to place n modulo chunks.
const (
	chunks   = 8
	chunkLen = 1 << 20
)

// A message has one of these lengths, in octets. Everything is big-endian.
const (
	chunkMsg = 4           // the sender says: the next chunk is in memory, and the number in this message is its length
	endMsg   = sha256.Size // the sender says: this was the last chunk, and this is the SHA-256 of the file
	freeMsg  = 0           // the receiver says: the oldest chunk is in the file, and its memory is free
	doneMsg  = 1           // the receiver says: the file is complete
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ifc := flag.String("i", "", "network interfaces, with commas between them; empty: the kernel's TCP")
	flag.Parse()
	if err := run(ctx, *ifc, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "filecopy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, ifc string, args []string) error {
	config := rdma.Config{KernelPort: true}
	if ifc != "" {
		config = rdma.Config{Ports: strings.Split(ifc, ",")}
	}
	if len(args) != 3 || args[0] != "receive" && args[0] != "send" {
		return errors.New(usage)
	}
	adapter, err := rdma.Open(config)
	if err != nil {
		return err
	}
	defer adapter.Close()
	if args[0] == "receive" {
		return receive(ctx, adapter, args[1], args[2], func(at string) { fmt.Println("listening on", at) })
	}
	return send(ctx, adapter, args[1], args[2])
}
