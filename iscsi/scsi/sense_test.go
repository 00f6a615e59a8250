package scsi_test

import (
	"testing"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// TestCapturedSense reads the sense data of tgtd (18 octets) and LIO (96 octets).
func TestCapturedSense(t *testing.T) {
	seen := map[string]int{}
	for _, a := range answers(t) {
		if a.status != scsi.CheckCondition {
			continue
		}
		s, err := scsi.ParseSense(a.sense)
		if err != nil {
			t.Errorf("%s: sense %x: %v", a.capture, a.sense, err)
		}
		seen[s.String()]++
		if again, err := scsi.ParseSense(s.AppendFixed(nil)); err != nil || again != s {
			t.Errorf("%+v became %+v, %v", s, again, err)
		}
	}
	for _, want := range []string{
		"UNIT ATTENTION, POWER ON, RESET, OR BUS DEVICE RESET OCCURRED", // tgtd's first
		"UNIT ATTENTION, REPORTED LUNS DATA HAS CHANGED",                // LIO's first
		"ILLEGAL REQUEST, INVALID COMMAND OPERATION CODE",               // LIO: REPORT SUPPORTED OPERATION CODES
		"ILLEGAL REQUEST, LOGICAL UNIT NOT SUPPORTED",                   // LUN 200
		"ILLEGAL REQUEST, WRITE ERROR - UNEXPECTED UNSOLICITED DATA",    // Data-Out though InitialR2T=Yes
	} {
		if seen[want] == 0 {
			t.Errorf("no %q in %v", want, seen)
		}
	}
}

func TestSense(t *testing.T) { // SPC-4 §4.5.2, §4.5.3
	for _, c := range []struct {
		name, fixed, descriptor string
		want                    scsi.Sense
	}{
		{"field of the CDB", "70 00 05 00000000 0a 00000000 2400 00 c0 0002", "72 05 2400 000000 08  02 06 0000 c0 0002 00",
			scsi.Sense{Key: scsi.IllegalRequest, Code: scsi.InvalidFieldInCDB, Field: 3}},
		{"field of a parameter list", "70 00 05 00000000 0a 00000000 2600 00 80 0010", "72 05 2600 000000 08  02 06 0000 80 0010 00",
			scsi.Sense{Key: scsi.IllegalRequest, Code: scsi.InvalidFieldInParameterList, Field: 17, InParam: true}},
		{"medium error at an LBA", "f0 00 03 00001234 0a 00000000 1100 00 000000", "72 03 1100 000000 0c  00 0a 80 00 0000000000001234",
			scsi.Sense{Key: scsi.MediumError, Code: scsi.UnrecoveredReadError, Info: 0x1234, HasInfo: true}},
		{"progress", "70 00 02 00000000 0a 00000000 041b 00 80 4000", "72 02 041b 000000 08  02 06 0000 80 4000 00",
			scsi.Sense{Key: scsi.NotReady, Code: scsi.SanitizeInProgress, Progress: 0x4000, HasProgress: true}},
		{"deferred", "71 00 04 00000000 0a 00000007 4400 00 000000", "73 04 4400 000000 0c  01 0a 00 00 0000000000000007",
			scsi.Sense{Key: scsi.HardwareError, Code: scsi.InternalTargetFailure, Specific: 7, Deferred: true}},
	} {
		for _, f := range []struct {
			text string
			make func([]byte) []byte
		}{{c.fixed, c.want.AppendFixed}, {c.descriptor, c.want.AppendDescriptor}} {
			b := octets(t, f.text)
			if got, err := scsi.ParseSense(b); err != nil || got != c.want {
				t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
			}
			if got := f.make(nil); string(got) != string(b) {
				t.Errorf("%s: %x, want %x", c.name, got, b)
			}
		}
	}
	big := scsi.Sense{Key: scsi.MediumError, Code: scsi.WriteError, Info: 1 << 40, HasInfo: true}
	if got, err := scsi.ParseSense(big.AppendFixed(nil)); err != nil || got.HasInfo {
		t.Errorf("an LBA of 40 bits in the fixed format: %+v, %v", got, err)
	}
	if got, err := scsi.ParseSense(big.AppendDescriptor(nil)); err != nil || got != big {
		t.Errorf("an LBA of 40 bits: %+v, %v", got, err)
	}
}

// TestShortSense reads what ends early: sense data cut by the target, and descriptors
// that go beyond the end.
func TestShortSense(t *testing.T) {
	s, err := scsi.ParseSense(octets(t, "70 00 06 00000000 00"))
	if err != nil || s != (scsi.Sense{Key: scsi.UnitAttention}) {
		t.Errorf("8 octets: %+v, %v", s, err)
	}
	s, err = scsi.ParseSense(octets(t, "72 06 2900 000000 ff 02 ff"))
	if err != nil || s != (scsi.Sense{Key: scsi.UnitAttention, Code: scsi.PowerOn}) {
		t.Errorf("descriptor beyond the end: %+v, %v", s, err)
	}
	for _, bad := range []string{"", "70 00 06 000000", "00 00 06 00000000 0a 00000000", "7f 00 06 00000000 00"} {
		if _, err := scsi.ParseSense(octets(t, bad)); err != scsi.ErrSense {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestNames(t *testing.T) {
	s := scsi.Sense{Key: scsi.IllegalRequest, Code: scsi.InvalidFieldInCDB, Field: 3}
	if s.String() != "ILLEGAL REQUEST, INVALID FIELD IN CDB, octet 2 of the CDB" {
		t.Error(s)
	}
	s.InParam, s.Deferred = true, true
	if s.String() != "ILLEGAL REQUEST, INVALID FIELD IN CDB, octet 2 of the parameter list, of an earlier command" {
		t.Error(s)
	}
	for got, want := range map[string]string{
		scsi.Key(12).String(): "sense key 0xc", scsi.Code(0x8001).String(): "additional sense code 80/01", scsi.TaskSetFull.String(): "TASK SET FULL",
		scsi.Status(1).String(): "status 0x01", scsi.DiskDevice.String(): "disk", scsi.DeviceType(1).String(): "device type 0x01",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if !scsi.Good.Ended() || !scsi.ConditionMet.Ended() || scsi.Busy.Ended() {
		t.Error("which status is the end")
	}
}
