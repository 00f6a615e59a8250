package tcp

import (
	"reflect"
	"runtime"
	"testing"
)

var somewhere *Conn // keeps the connection on the heap

// TestConnIsSmall: an idle connection takes at most 1536 octets of heap, not counting its Memory and its congestion
// control. The allocator has no size between 1536 and 1792, and needs 8 octets of each.
func TestConnIsSmall(t *testing.T) {
	const most, many = 1536, 10000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range many {
		somewhere = new(Conn)
	}
	runtime.ReadMemStats(&after)
	each := (after.TotalAlloc - before.TotalAlloc) / many
	t.Logf("a Conn has %d octets and takes %d", reflect.TypeFor[Conn]().Size(), each)
	if each > most {
		t.Errorf("a Conn takes %d octets, at most %d are wanted", each, most)
	}
}
