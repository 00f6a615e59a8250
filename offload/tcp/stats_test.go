package tcp

import (
	"reflect"
	"testing"
)

// TestAddSince: AddSince adds the growth of every counter.
func TestAddSince(t *testing.T) {
	var sum, now, before Stats
	set := func(s *Stats, n func(i int) uint64) {
		v := reflect.ValueOf(s).Elem()
		for i := range v.NumField() {
			v.Field(i).SetUint(n(i))
		}
	}
	set(&sum, func(i int) uint64 { return uint64(1000 * i) })
	set(&now, func(i int) uint64 { return uint64(50 + 3*i) })
	set(&before, func(i int) uint64 { return uint64(10 + i) })
	sum.AddSince(&now, &before)
	v := reflect.ValueOf(sum)
	for i := range v.NumField() {
		if got, want := v.Field(i).Uint(), uint64(1000*i+40+2*i); got != want {
			t.Errorf("%s is %d, want %d", v.Type().Field(i).Name, got, want)
		}
	}
}
