package dump

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/internal/version"
	"github.com/stag-rdma/stag/offload/report"
)

// file writes packets as pcapng: one interface for each device of each adapter.
type file struct {
	blocks
	ng      *pcapgo.NgWriter
	start   time.Time
	snapLen int
}

// newFile writes the headers of the file. It gives each source the number of its
// interface in the file.
func newFile(out *os.File, sources []*source, snapLen int) (*file, error) {
	f := &file{blocks: blocks{out: out}, start: time.Now(), snapLen: snapLen}
	for i, s := range sources {
		s.number = i
		intf := pcapgo.NgInterface{
			Name: s.device, Description: fmt.Sprintf("pid %d (%s), adapter %d", s.PID, s.program, s.Adapter),
			OS: runtime.GOOS, LinkType: layers.LinkTypeEthernet, SnapLength: uint32(snapLen), Comment: s.filterText,
		}
		var err error
		if i == 0 {
			f.ng, err = pcapgo.NewNgWriterInterface(&f.blocks, intf, pcapgo.NgWriterOptions{SectionInfo: section()})
		} else {
			_, err = f.ng.AddInterface(intf)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := f.block(); err != nil {
		return nil, err
	}
	_, err := f.flush()
	return f, err
}

// section returns the pcapng section header, which names the program and the host.
func section() pcapgo.NgSectionInfo {
	info := pcapgo.NgSectionInfo{Hardware: runtime.GOARCH, OS: runtime.GOOS, Application: "stag dump"}
	if v, err := version.Read(); err == nil {
		info.Application += " " + v.Version
		info.OS += " " + v.Kernel
	}
	return info
}

// block marks that the output ends with a complete block.
func (f *file) block() error {
	defer f.end()
	return f.ng.Flush() // Flush passes the block on to f's output, which is of type blocks
}

// add writes a packet. Before the first packet of a connection it writes the two packets
// that stand for the MPA handshake.
func (f *file) add(s *source, p packet) error {
	if st, ok := s.streams[p.Flow]; ok && p.Flow != 0 {
		if frames, ok := handshake(p.Packet, st); ok {
			delete(s.streams, p.Flow)
			if err := f.addHandshake(s, p, st, frames); err != nil {
				return err
			}
		}
	}
	if err := f.write(s, p, comment(p)); err != nil {
		return err
	}
	f.end()
	return nil
}

// addHandshake writes the packets that stand for the MPA handshake. Both packets and
// p are in the output, or none of the three is: see blocks.
func (f *file) addHandshake(s *source, p packet, st report.Stream, frames [2][]byte) error {
	p.missed, p.marks = 0, nil
	for i, what := range []string{"Request", "Reply"} {
		p.Data, p.Length, p.Out = frames[i], len(frames[i]), st.Initiator == (i == 0)
		if err := f.write(s, p, fmt.Sprintf(standsFor, what)); err != nil {
			return err
		}
	}
	return nil
}

// write writes one packet. The comment is stored with the packet in the file, and each
// mark as one more comment.
func (f *file) write(s *source, p packet, comment string) error {
	queue := uint32(p.Queue)
	o := pcapgo.NgPacketOptions{
		Comments: append([]string{comment}, p.marks...),
		Flags:    &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionInbound},
		Queue:    &queue,
	}
	if p.Out {
		o.Flags.Direction = pcapgo.NgEpbFlagDirectionOutbound
	}
	if p.missed > 0 {
		o.DropCount = &p.missed
	}
	data := p.Data[:min(len(p.Data), f.snapLen)]
	ci := gopacket.CaptureInfo{Timestamp: p.At, CaptureLength: len(data), Length: max(p.Length, len(p.Data)), InterfaceIndex: s.number}
	return errors.Join(f.ng.WritePacketWithOptions(ci, data, o), f.ng.Flush())
}

// comment returns the facts about a packet that the frame does not have.
func comment(p packet) string {
	text := "in"
	if p.Out {
		text = "out"
	}
	text += fmt.Sprintf(" queue %d", p.Queue)
	if p.Flow != 0 {
		text += fmt.Sprintf(" flow %#x", p.Flow)
	}
	if p.QP != 0 {
		text += fmt.Sprintf(" qp %d", p.QP)
	}
	return text
}

// finish adds the counters of each source.
func (f *file) finish(sources []*source) error {
	now := time.Now()
	for _, s := range sources {
		err := f.ng.WriteInterfaceStats(s.number, pcapgo.NgInterfaceStatistics{
			LastUpdate: now, StartTime: f.start, EndTime: now,
			PacketsReceived: s.seen + s.lost, PacketsDropped: s.lost,
		})
		if err := errors.Join(err, f.block()); err != nil {
			return err
		}
	}
	_, err := f.flush()
	return err
}

// IsTerminal reports whether f is a terminal, which cannot show a capture.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
