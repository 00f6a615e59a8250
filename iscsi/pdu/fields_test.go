package pdu_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/seq"
)

// TestFields sets one field and finds it at its place in the figures of RFC 7143 §11 and
// RFC 7144 §5 and §6, and nowhere else.
func TestFields(t *testing.T) {
	for _, c := range []struct {
		name string
		at   int // the octet at which the figure has the field
		want string
		set  func(h *pdu.Header)
		get  func(h *pdu.Header) bool
	}{
		{"Priority", 2, "0d", func(h *pdu.Header) { h.SetPriority(0xfd) }, func(h *pdu.Header) bool { return h.Priority() == 13 }},
		{"Attribute", 1, "04", func(h *pdu.Header) { h.SetAttribute(pdu.ACA) }, func(h *pdu.Header) bool { return h.Attribute() == pdu.ACA }},
		{"StatusQualifier", 10, "4001", func(h *pdu.Header) { h.SetStatusQualifier(0x4001) }, func(h *pdu.Header) bool { return h.StatusQualifier() == 0x4001 }},
		{"Response", 2, "01", func(h *pdu.Header) { h.SetResponse(1) }, func(h *pdu.Header) bool { return h.Response() == pdu.ResponseTargetFailure }},
		{"Status", 3, "18", func(h *pdu.Header) { h.SetStatus(0x18) }, func(h *pdu.Header) bool { return h.Status() == 0x18 }},
		{"SNACKTag", 20, "01020304", func(h *pdu.Header) { h.SetSNACKTag(0x01020304) }, func(h *pdu.Header) bool { return h.SNACKTag() == 0x01020304 }},
		{"ExpDataSN", 36, "01020304", func(h *pdu.Header) { h.SetExpDataSN(0x01020304) }, func(h *pdu.Header) bool { return h.ExpDataSN() == 0x01020304 }},
		{"BidiResidual", 40, "01020304", func(h *pdu.Header) { h.SetBidiResidual(0x01020304) }, func(h *pdu.Header) bool { return h.BidiResidual() == 0x01020304 }},
		{"Residual", 44, "01020304", func(h *pdu.Header) { h.SetResidual(0x01020304) }, func(h *pdu.Header) bool { return h.Residual() == 0x01020304 }},
		{"Function", 1, "85", func(h *pdu.Header) { h.SetFunction(pdu.LogicalUnitReset) }, func(h *pdu.Header) bool { return h.Function() == 5 && h.Final() }},
		{"ReferencedTaskTag", 20, "01020304", func(h *pdu.Header) { h.SetReferencedTaskTag(0x01020304) }, func(h *pdu.Header) bool { return h.ReferencedTaskTag() == 0x01020304 }},
		{"RefCmdSN", 32, "01020304", func(h *pdu.Header) { h.SetRefCmdSN(0x01020304) }, func(h *pdu.Header) bool { return h.RefCmdSN() == 0x01020304 }},
		{"EDTL", 20, "01020304", func(h *pdu.Header) { h.SetEDTL(0x01020304) }, func(h *pdu.Header) bool { return h.EDTL() == 0x01020304 }},
		{"CDB", 32, "0102030405060708090a0b0c0d0e0f10", func(h *pdu.Header) {
			h.SetCDB([]byte("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11"))
		},
			func(h *pdu.Header) bool { return len(h.CDB()) == 16 && h.CDB()[15] == 16 }},
		{"DataSN", 36, "01020304", func(h *pdu.Header) { h.SetDataSN(0x01020304) }, func(h *pdu.Header) bool { return h.DataSN() == 0x01020304 }},
		{"R2TSN", 36, "01020304", func(h *pdu.Header) { h.SetR2TSN(0x01020304) }, func(h *pdu.Header) bool { return h.R2TSN() == 0x01020304 }},
		{"BufferOffset", 40, "01020304", func(h *pdu.Header) { h.SetBufferOffset(0x01020304) }, func(h *pdu.Header) bool { return h.BufferOffset() == 0x01020304 }},
		{"DesiredLength", 44, "01020304", func(h *pdu.Header) { h.SetDesiredLength(0x01020304) }, func(h *pdu.Header) bool { return h.DesiredLength() == 0x01020304 }},
		{"SNACKType", 1, "82", func(h *pdu.Header) { h.SetSNACKType(pdu.SNACKDataACK) }, func(h *pdu.Header) bool { return h.SNACKType() == pdu.SNACKDataACK }},
		{"BegRun", 40, "01020304", func(h *pdu.Header) { h.SetBegRun(0x01020304) }, func(h *pdu.Header) bool { return h.BegRun() == 0x01020304 }},
		{"RunLength", 44, "01020304", func(h *pdu.Header) { h.SetRunLength(0x01020304) }, func(h *pdu.Header) bool { return h.RunLength() == 0x01020304 }},
		{"Stages", 1, "07", func(h *pdu.Header) { h.SetStages(1, 3) }, func(h *pdu.Header) bool { return h.CurrentStage() == 1 && h.NextStage() == 3 }},
		{"VersionMax", 2, "07", func(h *pdu.Header) { h.SetVersionMax(7) }, func(h *pdu.Header) bool { return h.VersionMax() == 7 }},
		{"VersionMin", 3, "07", func(h *pdu.Header) { h.SetVersionMin(7) }, func(h *pdu.Header) bool { return h.VersionMin() == 7 }},
		{"VersionActive", 3, "07", func(h *pdu.Header) { h.SetVersionActive(7) }, func(h *pdu.Header) bool { return h.VersionActive() == 7 }},
		{"ISID", 8, "800102030405", func(h *pdu.Header) { h.SetISID(pdu.ISID{0x80, 1, 2, 3, 4, 5}) }, func(h *pdu.Header) bool { return h.ISID() == pdu.ISID{0x80, 1, 2, 3, 4, 5} }},
		{"TSIH", 14, "0102", func(h *pdu.Header) { h.SetTSIH(0x0102) }, func(h *pdu.Header) bool { return h.TSIH() == 0x0102 }},
		{"CID", 20, "0102", func(h *pdu.Header) { h.SetCID(0x0102) }, func(h *pdu.Header) bool { return h.CID() == 0x0102 }},
		{"LoginStatus", 36, "0207", func(h *pdu.Header) { h.SetLoginStatus(pdu.MissingParameter) },
			func(h *pdu.Header) bool {
				return h.LoginStatus() == pdu.MissingParameter && h.LoginStatus().Class() == 2
			}},
		{"LogoutReason", 1, "82", func(h *pdu.Header) { h.SetLogoutReason(pdu.RemoveForRecovery) }, func(h *pdu.Header) bool { return h.LogoutReason() == pdu.RemoveForRecovery }},
		{"Time2Wait", 40, "0102", func(h *pdu.Header) { h.SetTime2Wait(0x0102) }, func(h *pdu.Header) bool { return h.Time2Wait() == 0x0102 }},
		{"Time2Retain", 42, "0102", func(h *pdu.Header) { h.SetTime2Retain(0x0102) }, func(h *pdu.Header) bool { return h.Time2Retain() == 0x0102 }},
		{"Event", 36, "04", func(h *pdu.Header) { h.SetEvent(pdu.EventNegotiate) }, func(h *pdu.Header) bool { return h.Event() == pdu.EventNegotiate }},
		{"VendorCode", 37, "09", func(h *pdu.Header) { h.SetVendorCode(9) }, func(h *pdu.Header) bool { return h.VendorCode() == 9 }},
		{"Parameters", 38, "010203040506", func(h *pdu.Header) { h.SetParameters(0x0102, 0x0304, 0x0506) },
			func(h *pdu.Header) bool { a, b, c := h.Parameters(); return a == 0x0102 && b == 0x0304 && c == 0x0506 }},
		{"RejectReason", 2, "09", func(h *pdu.Header) { h.SetRejectReason(pdu.RejectInvalidField) }, func(h *pdu.Header) bool { return h.RejectReason() == pdu.RejectInvalidField }},
		{"LUN", 8, "4001020304050607", func(h *pdu.Header) { h.SetLUN(0x4001020304050607) }, func(h *pdu.Header) bool { return h.LUN() == 0x4001020304050607 }},
		{"AHSLength", 4, "ff", func(h *pdu.Header) { h.SetAHSLength(pdu.MaxAHSLength) }, func(h *pdu.Header) bool { return h.AHSLength() == 1020 }},
		{"DataLength", 5, "ffffff", func(h *pdu.Header) { h.SetDataLength(pdu.MaxDataLength) }, func(h *pdu.Header) bool { return h.DataLength() == 1<<24-1 }},
		{"MaxCmdSN", 32, "ffffffff", func(h *pdu.Header) { h.SetMaxCmdSN(1<<32 - 1) }, func(h *pdu.Header) bool { return h.MaxCmdSN() == 1<<32-1 }},
		{"ExpCmdSN", 28, "01020304", func(h *pdu.Header) { h.SetExpCmdSN(0x01020304) }, func(h *pdu.Header) bool { return h.ExpCmdSN() == h.ExpStatSN() }},
		{"CmdSN", 24, "01020304", func(h *pdu.Header) { h.SetCmdSN(0x01020304) }, func(h *pdu.Header) bool { return h.CmdSN() == seq.Num(0x01020304) && h.StatSN() == h.CmdSN() }},
	} {
		want := octets(t, c.want)
		for _, old := range []byte{0, 0xff} {
			h := pdu.Header(bytes.Repeat([]byte{old}, pdu.HeaderLen))
			c.set(&h)
			if !c.get(&h) {
				t.Errorf("%s: the getter does not find what the setter wrote: %x", c.name, h)
			}
			if got := h[c.at : c.at+len(want)]; old == 0 && !bytes.Equal(got, want) {
				t.Errorf("%s: octets %x at %d, want %x", c.name, got, c.at, want)
			}
			rest := append(bytes.Clone(h[:c.at]), h[c.at+len(want):]...)
			if !bytes.Equal(rest, bytes.Repeat([]byte{old}, len(rest))) {
				t.Errorf("%s: other octets changed: %x", c.name, h)
			}
		}
	}
}

// TestOpcodes compares the rows with RFC 7143 §11.2.1.2, and with the rules of numbering
// in §4.2.2.
func TestOpcodes(t *testing.T) {
	rows := map[pdu.Opcode]string{ // name; flags: c CmdSN, s StatSN, d data, a AHS
		0x00: "NOP-Out cd", 0x01: "SCSI Command cda", 0x02: "Task Management Function Request c", 0x03: "Login Request cd",
		0x04: "Text Request cd", 0x05: "SCSI Data-Out d", 0x06: "Logout Request c", 0x10: "SNACK Request -",
		0x20: "NOP-In sd", 0x21: "SCSI Response sd", 0x22: "Task Management Function Response s", 0x23: "Login Response sd",
		0x24: "Text Response sd", 0x25: "SCSI Data-In sd", 0x26: "Logout Response s", 0x31: "R2T -", 0x32: "Asynchronous Message sd", 0x3f: "Reject sd",
	}
	for op := range pdu.Opcode(0x40) {
		want, defined := rows[op]
		got := pdu.InfoOf(op)
		if !defined {
			if got.Name != "" || !strings.HasPrefix(op.String(), "iSCSI opcode 0x") {
				t.Errorf("opcode %#x is called %q", uint8(op), got.Name)
			}
			continue
		}
		flags := ""
		for _, f := range []struct {
			on   bool
			name string
		}{{got.CmdSN, "c"}, {got.StatSN, "s"}, {got.Data, "d"}, {got.AHS, "a"}} {
			if f.on {
				flags += f.name
			}
		}
		if flags == "" {
			flags = "-"
		}
		if op.String()+" "+flags != want || got.Target != (op >= 0x20) {
			t.Errorf("opcode %#x: %v %s, want %s", uint8(op), op, flags, want)
		}
	}
}

func TestNumbersAdvance(t *testing.T) {
	for _, c := range []struct {
		name         string
		command, sta bool
		fill         func(h *pdu.Header)
	}{
		{"command", true, false, func(h *pdu.Header) { h.Reset(pdu.OpCommand) }},
		{"immediate command", false, false, func(h *pdu.Header) { h.Reset(pdu.OpCommand); h.SetImmediate(true) }},
		{"Data-Out", false, false, func(h *pdu.Header) { h.Reset(pdu.OpDataOut) }},
		{"Response", false, true, func(h *pdu.Header) { h.Reset(pdu.OpResponse) }},
		{"Data-In", false, false, func(h *pdu.Header) { h.Reset(pdu.OpDataIn) }},
		{"Data-In with status", false, true, func(h *pdu.Header) { h.Reset(pdu.OpDataIn); h.SetFlags(pdu.Final | pdu.StatusPresent) }},
		{"R2T", false, false, func(h *pdu.Header) { h.Reset(pdu.OpR2T) }},
		{"answer to a ping", false, true, func(h *pdu.Header) { h.Reset(pdu.OpNOPIn) }},
		{"ping", false, false, func(h *pdu.Header) { h.Reset(pdu.OpNOPIn); h.SetInitiatorTaskTag(pdu.NoTag) }},
		{"Async", false, true, func(h *pdu.Header) { h.Reset(pdu.OpAsync) }},
	} {
		var h pdu.Header
		c.fill(&h)
		if h.AdvancesCmdSN() != c.command || h.AdvancesStatSN() != c.sta {
			t.Errorf("%s advances CmdSN %v, StatSN %v", c.name, h.AdvancesCmdSN(), h.AdvancesStatSN())
		}
	}
}
