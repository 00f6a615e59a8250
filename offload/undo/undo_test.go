package undo

import (
	"errors"
	"slices"
	"testing"
)

// TestRun: the last step is undone first, Run goes on after a failure and returns
// every error, and a second Run does nothing.
func TestRun(t *testing.T) {
	var s Stack
	var order []int
	first, second := errors.New("first"), errors.New("second")
	for i, err := range []error{first, nil, second} {
		s.Add(func() error { order = append(order, i); return err })
	}
	if err := s.Run(); !errors.Is(err, first) || !errors.Is(err, second) {
		t.Errorf("%v, want both errors", err)
	}
	if err := s.Run(); err != nil {
		t.Errorf("run again: %v", err)
	}
	if want := []int{2, 1, 0}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}
