package main

import (
	"errors"

	"github.com/stag-rdma/stag/loader"
)

// areUp returns an error if an interface is down: a server there would wait without end.
// Opening the interfaces finds other errors.
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
