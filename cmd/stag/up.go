package main

import (
	"errors"

	"github.com/stag-rdma/stag/loader"
)

// areUp returns an error if an interface is down, because a server on that interface would
// wait without end. Other errors are left to the code that opens the interfaces.
func areUp(interfaces []string) error {
	n, err := loader.Open()
	if err != nil {
		return err
	}
	defer n.Close()
	for _, name := range interfaces {
		if err := n.CheckUp(name); errors.Is(err, loader.ErrLinkDown) {
			return err
		}
	}
	return nil
}
