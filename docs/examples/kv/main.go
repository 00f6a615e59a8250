// Command kv is a key-value store whose readers do not disturb the server: a get is an
// RDMA Read of the server's table, and no code of the server runs for it. A put is a
// message to the server, because only the server changes the table.
//
//	go run ./docs/examples/kv serve 127.0.0.1:7471
//	go run ./docs/examples/kv put 127.0.0.1:7471 colour green
//	go run ./docs/examples/kv get 127.0.0.1:7471 colour
//
// With -i IFACE, or -i IFACE,IFACE, the command uses network interfaces, as root.
// Without -i it uses the kernel's TCP, and needs no rights.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/stag-rdma/stag/rdma"
)

const usage = "usage: kv [-i IFACE,...] serve ADDR | put ADDR KEY VALUE | get ADDR KEY"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ifc := flag.String("i", "", "network interfaces, with commas between them; empty: the kernel's TCP")
	flag.Parse()
	if err := run(ctx, *ifc, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "kv:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, ifc string, args []string) error {
	config := rdma.Config{KernelPort: true}
	if ifc != "" {
		config = rdma.Config{Ports: strings.Split(ifc, ",")}
	}
	if len(args) < 2 {
		return errors.New(usage)
	}
	adapter, err := rdma.Open(config)
	if err != nil {
		return err
	}
	defer adapter.Close()
	command, address, args := args[0], args[1], args[2:]
	switch {
	case command == "serve" && len(args) == 0:
		return serve(ctx, adapter, address, func(at string) { fmt.Println("listening on", at) })
	case command == "put" && len(args) == 2:
		return put(ctx, adapter, address, args[0], args[1])
	case command == "get" && len(args) == 1:
		return get(ctx, adapter, address, args[0])
	}
	return errors.New(usage)
}

func put(ctx context.Context, adapter *rdma.Adapter, address, key, value string) error {
	c, err := dial(ctx, adapter, address)
	if err != nil {
		return err
	}
	defer c.close()
	version, err := c.put(ctx, key, value)
	if err == nil {
		fmt.Printf("%s is %s, version %d\n", key, value, version)
	}
	return err
}

func get(ctx context.Context, adapter *rdma.Adapter, address, key string) error {
	c, err := dial(ctx, adapter, address)
	if err != nil {
		return err
	}
	defer c.close()
	s, err := c.get(ctx, key)
	if err == nil {
		fmt.Printf("%s is %s, version %d\n", key, s.value, s.version)
	}
	return err
}
