package rdma

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/nic"
)

// TestConfigReachesTheDevice: every field of a Config has a field in the device's
// configuration, and its value arrives there.
func TestConfigReachesTheDevice(t *testing.T) {
	var c Config
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("some")
		case reflect.Slice:
			f.Set(reflect.ValueOf([]string{"eth7"}))
		case reflect.Pointer:
			f.Set(reflect.ValueOf(slog.New(slog.DiscardHandler)))
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(i + 1))
		default:
			f.SetUint(uint64(i + 1))
		}
	}
	c.Spin = time.Second
	got := reflect.ValueOf(c.device())
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		f := got.FieldByName(name)
		if !f.IsValid() {
			t.Errorf("the device has no %s", name)
			continue
		}
		if want := v.Field(i).Convert(f.Type()); !reflect.DeepEqual(f.Interface(), want.Interface()) {
			t.Errorf("%s is %v at the device, want %v", name, f, want)
		}
	}
}

// TestChoicesMeanTheSame: the choices of a Config have the device's numbers.
func TestChoicesMeanTheSame(t *testing.T) {
	for ours, theirs := range map[any]any{
		ProgressAuto: adapter.ProgressAuto, ProgressEngine: adapter.ProgressEngine, ProgressInline: adapter.ProgressInline,
		PartialOnVeth: nic.PartialOnVeth, PartialAccepted: nic.PartialAccepted, PartialRefused: nic.PartialRefused,
		ZeroCopyAuto: afxdp.ZeroCopyAuto, ZeroCopyRequire: afxdp.ZeroCopyRequire, ZeroCopyOff: afxdp.ZeroCopyOff,
	} {
		if got, want := reflect.ValueOf(ours).Uint(), reflect.ValueOf(theirs).Uint(); got != want {
			t.Errorf("%T %d is %T %d", ours, got, theirs, want)
		}
	}
	if got := ZeroCopyRequire.String(); got != "require" {
		t.Errorf("ZeroCopyRequire is called %q", got)
	}
}
