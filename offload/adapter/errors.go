package adapter

import (
	"errors"
	"net"
)

var (
	// ErrClosed is returned by a closed adapter and by every object of a closed
	// adapter. errors.Is also finds net.ErrClosed.
	ErrClosed error = closedError{}
	// ErrNoPort is returned if no port of the adapter leads to the destination.
	ErrNoPort = errors.New("no port leads there")
)

// closedError makes errors.Is find net.ErrClosed in ErrClosed.
type closedError struct{}

func (closedError) Error() string        { return "closed" }
func (closedError) Is(target error) bool { return target == net.ErrClosed }
