package main

import (
	"errors"

	"github.com/stag-rdma/stag/loader"
)

// areUp refuses interfaces that are down: a server there would wait for nobody.
// Opening them tells what else is wrong.
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
