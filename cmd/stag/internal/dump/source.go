package dump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/report"
)

// source is one device of one adapter. Its packets arrive as one stream.
type source struct {
	control.Endpoint
	device     string
	program    string
	filterText string // description of the selected packets for users; "": all packets
	stream     *control.Capture
	number     int // number of the interface in the pcapng file

	// Only the goroutine of loop uses these fields.
	streams  map[uint32]report.Stream // streams of RDMA of which the file has no packet yet, by flow id
	iscsi    map[uint32]bool          // ids of the flows of iSCSI
	moves    map[uint32][]report.Move // moves of which the output has no packet yet, by flow id
	unmarked int                      // number of these moves
	seen     uint64                   // number of packets that arrived
	lost     uint64                   // number of packets that were lost before they arrived
	told     uint64                   // number of lost packets that comments in the file have reported
}

// maxISCSI is how many flows of iSCSI a source remembers. An engine that wants to do
// harm cannot fill the memory.
const maxISCSI = 1 << 16

// learn remembers a stream. handshake: the output gets packets that stand for the MPA
// handshake, which a stream of iSCSI does not have.
func (s *source) learn(st report.Stream, handshake bool) {
	switch {
	case st.Kind == report.ISCSI:
		if len(s.iscsi) == maxISCSI {
			clear(s.iscsi)
		}
		s.iscsi[st.Flow] = true
	case handshake:
		delete(s.iscsi, st.Flow)
		s.streams[st.Flow] = st
	default:
		delete(s.iscsi, st.Flow)
	}
}

func (s *source) String() string {
	if s.UID != os.Geteuid() {
		return fmt.Sprintf("%s of pid %d (%s, uid %d)", s.device, s.PID, s.program, s.UID)
	}
	return fmt.Sprintf("%s of pid %d (%s)", s.device, s.PID, s.program)
}

// event is a batch of a source, or the error with which the source has ended.
type event struct {
	from  *source
	batch report.Batch
	err   error
}

// read sends the batches of the source to the channel until the source ends.
func (s *source) read(ctx context.Context, to chan<- event) {
	for {
		b, err := s.stream.Next()
		select {
		case to <- event{s, b, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// find starts a capture on every selected device. It writes a note for every engine that
// did not answer.
func find(ctx context.Context, o Options) (sources []*source, err error) {
	list, err := engines.Find(o.PID, o.All)
	if err != nil {
		return nil, err
	}
	answer, err := engines.Ask(ctx, engines.Asking{PID: o.PID, AllUsers: o.All, Parts: report.PartDevices, Log: o.Log})
	if err != nil {
		return nil, err
	}
	var why refusals
	for _, f := range answer.Failed {
		why.failed = append(why.failed, f.Err)
	}
	for _, from := range answer.Sources {
		at := slices.IndexFunc(list, func(e control.Endpoint) bool {
			return e.PID == from.PID && e.UID == from.UID && e.Adapter == from.Adapter
		})
		if from.Instance != "" || at < 0 {
			continue // the source is pinned objects, or an engine that has just started
		}
		found, err := begin(ctx, list[at], from.Engine, o, &why)
		sources = append(sources, found...)
		if err != nil {
			closeAll(sources)
			return nil, err
		}
	}
	if len(sources) == 0 {
		return nil, why.err(o)
	}
	for _, err := range why.failed {
		o.note("%v", err)
	}
	return sources, nil
}

// begin starts a capture on the devices of one adapter.
func begin(ctx context.Context, e control.Endpoint, r report.Engine, o Options, why *refusals) (sources []*source, err error) {
	for _, d := range r.Devices {
		name := engines.Clean(d.Name)
		s := &source{Endpoint: e, device: name, program: engines.Clean(r.Program), filterText: o.filterText(), streams: map[uint32]report.Stream{}, iscsi: map[uint32]bool{}, moves: map[uint32][]report.Move{}}
		switch {
		case d.Name == report.KernelDevice:
			why.kernel = append(why.kernel, e.PID)
			continue
		case o.Device != "" && d.Name != o.Device:
			why.devices = append(why.devices, s.String())
			continue
		}
		s.stream, err = e.Capture(ctx, o.filter(d.Name))
		switch {
		case ctx.Err() != nil:
			return sources, context.Cause(ctx)
		case err != nil:
			why.refused = append(why.refused, err)
		default:
			sources = append(sources, s)
		}
	}
	return sources, nil
}

func closeAll(sources []*source) {
	for _, s := range sources {
		s.stream.Close() // no other code uses the capture of this source any more
	}
}

// refusals are the reasons why engines are not captured.
type refusals struct {
	failed  []error  // errors of engines that do not answer
	refused []error  // errors of engines that answer and refuse the capture
	kernel  []int    // pids of processes that have only the kernel port
	devices []string // names of devices that the options do not select
}

// err returns why there is nothing to capture.
func (r refusals) err(o Options) error {
	switch {
	case len(r.refused) > 0:
		return oneLine(r.refused)
	case len(r.devices) > 0:
		return fmt.Errorf("no engine has device %s: there is %s", o.Device, strings.Join(r.devices, ", "))
	case len(r.kernel) > 0:
		return fmt.Errorf("pid %d has no port but the kernel's: its packets are the kernel's, so use tcpdump", r.kernel[0])
	case len(r.failed) > 0:
		return oneLine(r.failed)
	}
	return errors.New(engines.None(o.All))
}

// oneLine joins the errors in one line.
func oneLine(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return fmt.Errorf("no engine can do it: %s", strings.Join(texts, "; "))
}

// ending describes how a source ended.
func ending(err error) string {
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "its adapter has been closed"
	}
	return err.Error()
}
