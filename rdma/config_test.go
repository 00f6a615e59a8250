package rdma

import (
	"log/slog"
	"net/netip"
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
	fillFields(reflect.ValueOf(&c).Elem())
	c.Groups = make([]Group, 1)
	fillFields(reflect.ValueOf(&c.Groups[0]).Elem())
	c.Spin = time.Second
	device := c.device()
	if len(device.Groups) != 1 {
		t.Fatalf("%d groups at the device", len(device.Groups))
	}
	fieldsReach(t, reflect.ValueOf(c.Groups[0]), reflect.ValueOf(device.Groups[0]))
	fieldsReach(t, reflect.ValueOf(c), reflect.ValueOf(device))
}

// fillFields sets every field of a struct to a value that is not its zero value.
func fillFields(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("some")
		case reflect.Slice:
			switch f.Type().Elem() {
			case reflect.TypeFor[string]():
				f.Set(reflect.ValueOf([]string{"eth7"}))
			case reflect.TypeFor[netip.Addr]():
				f.Set(reflect.ValueOf([]netip.Addr{netip.IPv6Loopback()}))
			}
		case reflect.Pointer:
			f.Set(reflect.ValueOf(slog.New(slog.DiscardHandler)))
		case reflect.Func: // Upgrade is a function of another type at the device
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(i + 1))
		default:
			f.SetUint(uint64(i + 1))
		}
	}
}

// fieldsReach checks that every field of v is in got, with the same value.
func fieldsReach(t *testing.T, v, got reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name == "Daemon" {
			continue // the ports are those of another process
		}
		f := got.FieldByName(name)
		if !f.IsValid() {
			t.Errorf("the device has no %s", name)
			continue
		}
		if name == "Groups" || name == "Upgrade" {
			continue // of another type: the elements are compared, and TestHandedOver calls it
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
