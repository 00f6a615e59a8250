package handoff

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// An IPv6 socket that adds extension headers is refused, and taken when they are
// cleared.
func TestOpenRefusesExtensionHeaders(t *testing.T) {
	w := newWorld(t)
	padding := "\x00\x00\x01\x04\x00\x00\x00\x00"                                         // PadN
	routing := "\x00\x02\x04\x00\x00\x00\x00\x00" + string(w.Ends[1].V6.Addr().AsSlice()) // segment routing (RFC 8754), none left
	for _, c := range []struct {
		name   string
		option int
		value  string
	}{
		{"hop-by-hop options", unix.IPV6_HOPOPTS, padding},
		{"destination options", unix.IPV6_DSTOPTS, padding},
		{"a routing header", unix.IPV6_RTHDR, routing},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := w.connect(how{v6: true})
			set := func(value string) {
				control(t, a, func(fd int) error { return unix.SetsockoptString(fd, unix.SOL_IPV6, c.option, value) })
			}
			set(c.value)
			s, err := Open(a)
			if s != nil {
				s.Close()
			}
			wantErr(t, err, ErrOptions)
			set("")
			st := w.take(a)
			w.Must(st.placeholder.Close())
			b.Close()
		})
	}
}

// TestAccurateECN: what the kernel says of ECN decides, as far as it says anything.
func TestAccurateECN(t *testing.T) {
	word := func(fields uint32) []byte { // as a C compiler lays out bit fields, the first one first
		info := make([]byte, unix.SizeofTCPInfo)
		if bigEndian {
			binary.BigEndian.PutUint32(info[ecnModeAt:], fields<<30)
		} else {
			binary.LittleEndian.PutUint32(info[ecnModeAt:], fields)
		}
		return info
	}
	for mode, refused := range []bool{false, false, true, true} {
		i := tcpInfo{ecnMode: ecnMode(word(uint32(mode)))}
		if i.ecnMode != uint8(mode) || i.accurateECN() != refused {
			t.Errorf("mode %d is read as %d, accurate: %v", mode, i.ecnMode, i.accurateECN())
		}
	}
	if short := (tcpInfo{ecnMode: ecnMode(word(2)[:infoLen])}); short.accurateECN() {
		t.Error("a kernel that says nothing has said so")
	}
}
