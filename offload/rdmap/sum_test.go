package rdmap

import (
	"reflect"
	"strings"
	"testing"
)

// TestAdd: the sum has every counter. For the most at a time it has the larger number.
func TestAdd(t *testing.T) {
	var s, o Stats
	sv, ov := reflect.ValueOf(&s).Elem(), reflect.ValueOf(&o).Elem()
	for i := range sv.NumField() {
		sv.Field(i).SetUint(uint64(100 + i))
		ov.Field(i).SetUint(uint64(200 + 3*i))
	}
	s.Add(&o)
	for i := range sv.NumField() {
		name, want := sv.Type().Field(i).Name, uint64(300+4*i)
		if strings.HasPrefix(name, "Most") {
			want = uint64(200 + 3*i)
		}
		if got := sv.Field(i).Uint(); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}
