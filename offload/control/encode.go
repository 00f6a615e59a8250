package control

import (
	"bufio"
	"encoding/json"
	"io"
	"iter"

	"github.com/stag-rdma/stag/offload/report"
)

// encode writes a report as JSON. encode writes one element after the other, so that
// the whole text need not be in memory. If regions is not nil, its entries are the last
// list.
func encode(to io.Writer, e report.Engine, regions iter.Seq[report.MR]) error {
	w := bufio.NewWriterSize(to, 64<<10)
	head := e
	head.Devices, head.Flows, head.QPs, head.CQs, head.Queues, head.Counters, head.MRs = nil, nil, nil, nil, nil, nil, nil
	head.ISCSI, head.LUNs = nil, nil
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	w.Write(text[:len(text)-1])
	for _, list := range []func() error{
		func() error { return encodeList(w, "devices", e.Devices) },
		func() error { return encodeList(w, "flows", e.Flows) },
		func() error { return encodeList(w, "qps", e.QPs) },
		func() error { return encodeList(w, "cqs", e.CQs) },
		func() error { return encodeList(w, "queues", e.Queues) },
		func() error { return encodeList(w, "counters", e.Counters) },
		func() error { return encodeList(w, "iscsi", e.ISCSI) },
		func() error { return encodeList(w, "luns", e.LUNs) },
	} {
		if err := list(); err != nil {
			return err
		}
	}
	if regions != nil {
		if err := encodeAll(w, "mrs", regions); err != nil {
			return err
		}
	}
	w.WriteString("}\n")
	return w.Flush()
}

// encodeList writes a list, unless it is nil.
func encodeList[T any](w *bufio.Writer, name string, list []T) error {
	if list == nil {
		return nil
	}
	return encodeAll(w, name, func(yield func(T) bool) {
		for _, v := range list {
			if !yield(v) {
				return
			}
		}
	})
}

func encodeAll[T any](w *bufio.Writer, name string, all iter.Seq[T]) error {
	w.WriteString(`,"` + name + `":[`)
	begun := false
	for v := range all {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if begun {
			w.WriteByte(',')
		}
		begun = true
		if _, err := w.Write(text); err != nil {
			return err // the caller has stopped reading
		}
	}
	return w.WriteByte(']')
}
