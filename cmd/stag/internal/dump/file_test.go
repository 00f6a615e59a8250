package dump

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/rig"
)

// writtenFile writes a file with three packets of two sources.
func writtenFile(t *testing.T) (name string, frames [][]byte) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "x.pcapng")
	out, err := os.Create(name)
	rig.Must(t, err)
	defer out.Close()
	a := &source{Endpoint: control.Endpoint{PID: 5, Adapter: 1}, device: "eth1", program: "p", filterText: "only qp 7"}
	b := &source{Endpoint: control.Endpoint{PID: 6, Adapter: 2}, device: "eth2", program: "q"}
	f, err := newFile(out, []*source{a, b}, 1000)
	rig.Must(t, err)
	for i, s := range []*source{a, b, a} {
		data := frame(t, wire.HeaderFields{}, seg, make([]byte, 100*i))
		frames = append(frames, data)
		p := packet{Packet: captured(data)}
		p.Out, p.missed = i != 1, uint64(2*i)
		rig.Must(t, f.add(s, p))
	}
	a.seen, a.lost, b.seen = 2, 4, 1
	n, err := f.flush()
	rig.Must(t, err)
	rig.Must(t, f.finish([]*source{a, b}))
	if n != 0 {
		t.Errorf("%d blocks not written", n)
	}
	return name, frames
}

// TestFile: another pcapng reader reads what was written.
func TestFile(t *testing.T) {
	name, frames := writtenFile(t)
	in, err := os.Open(name)
	rig.Must(t, err)
	defer in.Close()
	r, err := pcapgo.NewNgReader(in, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	rig.Must(t, err)
	for i := 0; ; i++ {
		data, ci, err := r.ReadPacketData()
		if err == io.EOF {
			if i != 3 {
				t.Errorf("%d packets", i)
			}
			break
		}
		rig.Must(t, err)
		if !bytes.Equal(data, frames[i]) || !ci.Timestamp.Equal(at) || ci.InterfaceIndex != i%2 || ci.Length != len(data) {
			t.Errorf("packet %d: %+v", i, ci)
		}
	}
	for i, want := range []pcapgo.NgInterface{
		{Name: "eth1", Description: "pid 5 (p), adapter 1", Comment: "only qp 7"}, {Name: "eth2", Description: "pid 6 (q), adapter 2"},
	} {
		got, err := r.Interface(i)
		rig.Must(t, err)
		if got.Name != want.Name || got.Description != want.Description || got.Comment != want.Comment || got.LinkType != layers.LinkTypeEthernet || got.SnapLength != 1000 {
			t.Errorf("interface %d is %+v", i, got)
		}
	}
	first, err := r.Interface(0)
	rig.Must(t, err)
	if s := first.Statistics; s.PacketsReceived != 6 || s.PacketsDropped != 4 || s.EndTime.IsZero() {
		t.Errorf("statistics: %+v", s)
	}
	if info := r.SectionInfo(); !strings.HasPrefix(info.Application, "stag dump ") || !strings.HasPrefix(info.OS, "linux ") || info.Hardware == "" {
		t.Errorf("section: %+v", info)
	}
}

func TestComment(t *testing.T) {
	p := packet{Packet: captured(nil)}
	for _, want := range []string{"out queue 3 flow 0x100003 qp 7", "out queue 3 flow 0x100003", "out queue 3"} {
		if got := comment(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if p.QP == 0 {
			p.Flow = 0
		}
		p.QP = 0
	}
}

// TestBlocksCutOff: a file-size limit in the middle of a block leaves whole blocks. flush returns how many are
// missing.
func TestBlocksCutOff(t *testing.T) {
	if os.Getenv("STAG_TEST_LIMIT") != "" {
		limited(t)
		return
	}
	inChild(t, "TestBlocksCutOff")
}

func limited(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	out, err := os.Create(name)
	rig.Must(t, err)
	defer out.Close()
	b := blocks{out: out}
	add := func(text string) {
		b.Write([]byte(text))
		b.end()
	}
	add("kept already\n")
	if n, err := b.flush(); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	var before syscall.Rlimit
	rig.Must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	rig.Must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 30, Max: before.Max}))
	defer syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before) // the child writes a coverage file at its end
	add("one\n")
	add("two\n")
	add("this one does not fit\n")
	add("nor this\n")
	n, err := b.flush()
	if n != 2 || !errors.Is(err, syscall.EFBIG) {
		t.Errorf("%d not written, %v", n, err)
	}
	got, err := os.ReadFile(name)
	rig.Must(t, err)
	if string(got) != "kept already\none\ntwo\n" {
		t.Errorf("the file has %q", got)
	}
	add("more\n") // this line still fits
	if n, err := b.flush(); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// TestBlocksNoReader: flush cannot remove anything from a pipe.
func TestBlocksNoReader(t *testing.T) {
	r, w, err := os.Pipe()
	rig.Must(t, err)
	defer w.Close()
	r.Close()
	b := blocks{out: w}
	b.Write([]byte("x\n"))
	b.end()
	if n, err := b.flush(); n != 1 || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%d, %v", n, err)
	}
}
