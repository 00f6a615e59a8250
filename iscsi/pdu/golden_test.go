package pdu_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// octets reads hexadecimal digits with spaces between them.
func octets(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func header(t testing.TB, text string) *pdu.Header {
	t.Helper()
	h := pdu.Header(octets(t, text))
	return &h
}

// golden are headers that open-iscsi, libiscsi, tgtd and LIO sent, and the same made by
// the setters.
var golden = []struct {
	name, header string
	digest       uint32 // 0: sent without one
	fill         func(h *pdu.Header)
}{
	{"INQUIRY", "01c10000 00000000 00000000 00000000 02000000 00000042 00000001 00000002 12000000 42000000 00000000 00000000", 0x014386af,
		func(h *pdu.Header) {
			h.Reset(pdu.OpCommand)
			h.SetFlags(pdu.Final | pdu.Read)
			h.SetAttribute(pdu.Simple)
			h.SetInitiatorTaskTag(0x02000000)
			h.SetEDTL(0x42)
			h.SetCmdSN(1)
			h.SetExpStatSN(2)
			h.SetCDB([]byte{0x12, 0, 0, 0, 0x42, 0})
		}},
	{"its Data-In", "25810000 00000042 00000000 00000000 02000000 ffffffff 00000002 00000002 00000082 00000000 00000000 00000000", 0x8d6e81bc,
		func(h *pdu.Header) {
			h.Reset(pdu.OpDataIn)
			h.SetFlags(pdu.Final | pdu.StatusPresent)
			h.SetDataLength(0x42)
			h.SetInitiatorTaskTag(0x02000000)
			h.SetTargetTransferTag(pdu.NoTag)
			h.SetStatSN(2)
			h.SetExpCmdSN(2)
			h.SetMaxCmdSN(0x82)
		}},
	{"TEST UNIT READY", "01810000 00000000 00010000 00000000 1eb483e5 00000000 7f160c70 00000001 00000000 00000000 00000000 00000000", 0,
		func(h *pdu.Header) {
			h.Reset(pdu.OpCommand)
			h.SetFlags(pdu.Final)
			h.SetAttribute(pdu.Simple)
			h.SetLUN(1 << 48)
			h.SetInitiatorTaskTag(0x1eb483e5)
			h.SetCmdSN(0x7f160c70)
			h.SetExpStatSN(1)
		}},
	{"CHECK CONDITION", "21800002 00000014 00000000 00000000 1eb483e5 00000000 00000001 7f160c71 7f160cf1 00000000 00000000 00000000", 0,
		func(h *pdu.Header) {
			h.Reset(pdu.OpResponse)
			h.SetFlags(pdu.Final)
			h.SetResponse(pdu.ResponseCompleted)
			h.SetStatus(2)
			h.SetDataLength(0x14)
			h.SetInitiatorTaskTag(0x1eb483e5)
			h.SetStatSN(1)
			h.SetExpCmdSN(0x7f160c71)
			h.SetMaxCmdSN(0x7f160cf1)
		}},
	{"Data-In with status and residual", "25830000 00000062 00000000 00000000 1eb483e9 ffffffff 00000005 7f160c75 7f160cf5 00000000 00000000 0000009d", 0,
		func(h *pdu.Header) {
			h.Reset(pdu.OpDataIn)
			h.SetFlags(pdu.Final | pdu.Underflow | pdu.StatusPresent)
			h.SetDataLength(98)
			h.SetInitiatorTaskTag(0x1eb483e9)
			h.SetTargetTransferTag(pdu.NoTag)
			h.SetStatSN(5)
			h.SetExpCmdSN(0x7f160c75)
			h.SetMaxCmdSN(0x7f160cf5)
			h.SetResidual(157)
		}},
	{"WRITE with immediate data", "01a10000 00002000 00010000 00000000 1eb483f2 00018000 7f160c7d 0000000e 2a080000 08000000 c0000000 00000000", 0,
		func(h *pdu.Header) {
			h.Reset(pdu.OpCommand)
			h.SetFlags(pdu.Final | pdu.Write)
			h.SetAttribute(pdu.Simple)
			h.SetDataLength(8192)
			h.SetLUN(1 << 48)
			h.SetInitiatorTaskTag(0x1eb483f2)
			h.SetEDTL(96 << 10)
			h.SetCmdSN(0x7f160c7d)
			h.SetExpStatSN(14)
			h.SetCDB([]byte{0x2a, 0x08, 0, 0, 8, 0, 0, 0, 0xc0, 0})
		}},
	{"R2T", "31800000 00000000 00010000 00000000 1eb483f2 20f58a58 0000000e 7f160c7e 7f160cfe 00000000 00002000 00016000", 0,
		func(h *pdu.Header) {
			h.Reset(pdu.OpR2T)
			h.SetFlags(pdu.Final)
			h.SetLUN(1 << 48)
			h.SetInitiatorTaskTag(0x1eb483f2)
			h.SetTargetTransferTag(0x20f58a58)
			h.SetStatSN(14)
			h.SetExpCmdSN(0x7f160c7e)
			h.SetMaxCmdSN(0x7f160cfe)
			h.SetR2TSN(0)
			h.SetBufferOffset(8192)
			h.SetDesiredLength(88 << 10)
		}},
	{"Data-Out, last", "05800000 00002000 00010000 00000000 1eb483f2 20f58a58 00000000 0000000f 00000000 0000000a 00016000 00000000", 0,
		func(h *pdu.Header) {
			h.Reset(pdu.OpDataOut)
			h.SetFlags(pdu.Final)
			h.SetDataLength(8192)
			h.SetLUN(1 << 48)
			h.SetInitiatorTaskTag(0x1eb483f2)
			h.SetTargetTransferTag(0x20f58a58)
			h.SetExpStatSN(15)
			h.SetDataSN(10)
			h.SetBufferOffset(0x16000)
		}},
	{"NOP-Out", "40800000 00000000 00000000 00000000 41000000 ffffffff 00000040 00000041 00000000 00000000 00000000 00000000", 0xdcbe2250,
		func(h *pdu.Header) {
			h.Reset(pdu.OpNOPOut)
			h.SetImmediate(true)
			h.SetFlags(pdu.Final)
			h.SetInitiatorTaskTag(0x41000000)
			h.SetTargetTransferTag(pdu.NoTag)
			h.SetCmdSN(0x40)
			h.SetExpStatSN(0x41)
		}},
	{"NOP-In", "20800000 00000000 00000000 00000000 41000000 ffffffff 00000041 00000040 000000c0 00000000 00000000 00000000", 0x026126b2,
		func(h *pdu.Header) {
			h.Reset(pdu.OpNOPIn)
			h.SetFlags(pdu.Final)
			h.SetInitiatorTaskTag(0x41000000)
			h.SetTargetTransferTag(pdu.NoTag)
			h.SetStatSN(0x41)
			h.SetExpCmdSN(0x40)
			h.SetMaxCmdSN(0xc0)
		}},
	{"Text Request", "44800000 00000010 00000000 00000000 7bfe8483 ffffffff 61be5b39 00000001 00000000 00000000 00000000 00000000", 0,
		func(h *pdu.Header) {
			h.Reset(pdu.OpText)
			h.SetImmediate(true)
			h.SetFlags(pdu.Final)
			h.SetDataLength(16)
			h.SetInitiatorTaskTag(0x7bfe8483)
			h.SetTargetTransferTag(pdu.NoTag)
			h.SetCmdSN(0x61be5b39)
			h.SetExpStatSN(1)
		}},
	{"Text Response", "24800000 00000043 00000000 00000000 7bfe8483 ffffffff 00000001 61be5b39 61be5b3a 00000000 00000000 00000000", 0,
		func(h *pdu.Header) {
			h.Reset(pdu.OpTextResponse)
			h.SetFlags(pdu.Final)
			h.SetDataLength(67)
			h.SetInitiatorTaskTag(0x7bfe8483)
			h.SetTargetTransferTag(pdu.NoTag)
			h.SetStatSN(1)
			h.SetExpCmdSN(0x61be5b39)
			h.SetMaxCmdSN(0x61be5b3a)
		}},
	{"Logout Request", "46800000 00000000 00000000 00000000 18000000 00000000 00000094 00000097 00000000 00000000 00000000 00000000", 0x1daec61f,
		func(h *pdu.Header) {
			h.Reset(pdu.OpLogout)
			h.SetImmediate(true)
			h.SetLogoutReason(pdu.CloseSession)
			h.SetInitiatorTaskTag(0x18000000)
			h.SetCID(0)
			h.SetCmdSN(0x94)
			h.SetExpStatSN(0x97)
		}},
	{"Logout Response", "26800000 00000000 00000000 00000000 18000000 00000000 00000097 00000094 00000114 00000000 00000000 00000000", 0xe610b71c,
		func(h *pdu.Header) {
			h.Reset(pdu.OpLogoutResponse)
			h.SetFlags(pdu.Final)
			h.SetResponse(pdu.LogoutClosed)
			h.SetInitiatorTaskTag(0x18000000)
			h.SetStatSN(0x97)
			h.SetExpCmdSN(0x94)
			h.SetMaxCmdSN(0x114)
		}},
	{"Reject", "3f800200 00000030 00000000 00000000 ffffffff 00000000 b2b71d3c 00000004 00000043 00000000 00000000 00000000", 0xb0e9ea23,
		func(h *pdu.Header) {
			h.Reset(pdu.OpReject)
			h.SetFlags(pdu.Final)
			h.SetRejectReason(pdu.RejectDataDigest)
			h.SetDataLength(48)
			h.SetInitiatorTaskTag(pdu.NoTag)
			h.SetStatSN(0xb2b71d3c)
			h.SetExpCmdSN(4)
			h.SetMaxCmdSN(0x43)
		}},
	{"Login Request", "43870000 0000018b 80e2d6f3 00000000 7bfe8482 00000000 61be5b39 00000001 00000000 00000000 00000000 00000000", 0,
		func(h *pdu.Header) {
			h.Reset(pdu.OpLogin)
			h.SetImmediate(true)
			h.SetFlags(pdu.Transit)
			h.SetStages(pdu.OperationalNegotiation, pdu.FullFeaturePhase)
			h.SetDataLength(0x18b)
			h.SetISID(pdu.ISID{0x80, 0xe2, 0xd6, 0xf3})
			h.SetInitiatorTaskTag(0x7bfe8482)
			h.SetCmdSN(0x61be5b39)
			h.SetExpStatSN(1)
		}},
	{"Login Response", "23870000 0000012c 80e2d6f3 00000100 7bfe8482 00000000 00000000 61be5b39 61be5b3a 00000000 00000000 00000000", 0,
		func(h *pdu.Header) {
			h.Reset(pdu.OpLoginResponse)
			h.SetFlags(pdu.Transit)
			h.SetStages(pdu.OperationalNegotiation, pdu.FullFeaturePhase)
			h.SetDataLength(0x12c)
			h.SetISID(pdu.ISID{0x80, 0xe2, 0xd6, 0xf3})
			h.SetTSIH(0x100)
			h.SetInitiatorTaskTag(0x7bfe8482)
			h.SetExpCmdSN(0x61be5b39)
			h.SetMaxCmdSN(0x61be5b3a)
		}},
	{"Login Response, refused", "23040000 00000000 00000000 00000000 39a2c7e5 00000000 00000000 00000000 00000000 02030000 00000000 00000000", 0,
		func(h *pdu.Header) {
			h.Reset(pdu.OpLoginResponse)
			h.SetStages(pdu.OperationalNegotiation, pdu.SecurityNegotiation)
			h.SetInitiatorTaskTag(0x39a2c7e5)
			h.SetLoginStatus(pdu.TargetNotFound)
		}},
}

func TestGoldenHeaders(t *testing.T) {
	for _, c := range golden {
		want := header(t, c.header)
		got := pdu.Header(bytes.Repeat([]byte{0xa5}, pdu.HeaderLen)) // the setters leave no old octet
		c.fill(&got)
		if got != *want {
			t.Errorf("%s: %x, want %x", c.name, got, *want)
		}
		if d := pdu.HeaderDigest(&got, nil); c.digest != 0 && d != c.digest {
			t.Errorf("%s: digest %08x, want %08x", c.name, d, c.digest)
		}
	}
}

func TestDigestLengths(t *testing.T) { // RFC 7143 §11.2
	var h pdu.Header
	for _, c := range []struct {
		d         pdu.Digests
		ahs, data int
		head, all int
	}{
		{pdu.Digests{}, 0, 0, 48, 48},
		{pdu.Digests{Header: true, Data: true}, 0, 0, 52, 52},
		{pdu.Digests{Data: true}, 8, 1, 56, 64},
		{pdu.Digests{Header: true}, 1020, 66, 1072, 1140},
		{pdu.Digests{Header: true, Data: true}, 0, 1<<24 - 1, 52, 52 + 1<<24 + 4},
	} {
		h.Reset(pdu.OpCommand)
		h.SetAHSLength(c.ahs)
		h.SetDataLength(c.data)
		if c.d.HeaderLen(&h) != c.head || c.d.Len(&h) != c.all {
			t.Errorf("%+v: header %d, all %d", c, c.d.HeaderLen(&h), c.d.Len(&h))
		}
	}
}

// A digest covers the pad (RFC 7143 §11.2.3). Data of 66 octets has two octets of pad.
func TestDataDigestCoversThePad(t *testing.T) {
	data := bytes.Repeat([]byte{7}, 66)
	want := pdu.UpdateDigest(0, append(bytes.Clone(data), 0, 0))
	if got := pdu.DataDigest(data); got != want {
		t.Errorf("digest %08x, want %08x", got, want)
	}
	var b [4]byte
	pdu.PutDigest(b[:], 0x11223344)
	if b != [4]byte{0x44, 0x33, 0x22, 0x11} || pdu.ReadDigest(b[:]) != 0x11223344 {
		t.Errorf("octets %x", b)
	}
}
