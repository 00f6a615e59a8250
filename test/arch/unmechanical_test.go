package arch

import (
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// The finder of what machines must not do must find it.
func TestUnmechanical(t *testing.T) {
	const source = `package p
import ("time"; "github.com/stag-rdma/stag/offload/clock")
func f(c chan int) {
	time.Sleep(time.Second)
	_ = clock.Now()
	go f(nil)
	c <- 1
	select {}
}`
	tree, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := unmechanical(tree)
	want := []string{"a channel", "time.Sleep", "clock.Now", "a goroutine", "a channel", "a channel"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
