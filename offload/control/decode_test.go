package control

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/rig"
)

// repeating reads a head, a piece again and again, and a tail.
func repeating(head, piece string, times int, tail string) io.Reader {
	block := strings.Repeat(piece, 1024)
	readers := []io.Reader{strings.NewReader(head)}
	for range times / 1024 {
		readers = append(readers, strings.NewReader(block))
	}
	return io.MultiReader(append(readers, strings.NewReader(strings.Repeat(piece, times%1024)+tail))...)
}

var begins = fmt.Sprintf(`{"schema":%d,"pid":1,"program":"p","adapter":1`, report.Schema)

// allocated returns how many octets f has allocated.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestHostileReport: an engine's report takes no more memory than its budget allows
// (several times that while lists grow), however little text it is.
func TestHostileReport(t *testing.T) {
	const budget = 1 << 20
	for what, text := range map[string]func() io.Reader{
		"empty QPs":        func() io.Reader { return repeating(begins+`,"qps":[{}`, `,{}`, 6<<20, `]}`) },
		"empty counters":   func() io.Reader { return repeating(begins+`,"counters":[{}`, `,{}`, 6<<20, `]}`) },
		"many lists":       func() io.Reader { return repeating(begins, `,"cqs":[{},{}]`, 1<<20, `}`) },
		"a long name":      func() io.Reader { return repeating(begins+`,"program":"`, `x`, 32<<20, `"}`) },
		"a long list":      func() io.Reader { return repeating(begins+`,"qps":[{"counters":[{}`, `,{}`, 6<<20, `]}]}`) },
		"a long key":       func() io.Reader { return repeating(begins+`,"`, `k`, 32<<20, `":1}`) },
		"a long number":    func() io.Reader { return repeating(begins+`,"netns":1`, `0`, 32<<20, `}`) },
		"nothing, at last": func() io.Reader { return repeating(begins+`,"pid":`, ` `, 32<<20, `}`) },
		"rights": func() io.Reader {
			return repeating(begins+`,"mrs":[`, `{"rights":["","","","","",""]},`, 1<<20, `{}]}`)
		},
	} {
		var r report.Engine
		var err error
		used := allocated(func() {
			r, err = decode(rig.Context(t), text(), Question{Parts: report.AllParts, Budget: NewBudget(budget)})
		})
		if !errors.Is(err, ErrTooMuch) || !reflect.ValueOf(r).IsZero() {
			t.Errorf("%s: %v", what, err)
		}
		if used > 16*budget {
			t.Errorf("%s: %d octets were allocated", what, used)
		}
	}
	// The decoder skips parts that were not asked for. They take no memory.
	text := repeating(begins+`,"qps":[{}`, `,{}`, 1<<20, `],"unheard":{"a":[1,{"b":null}]},"cqs":[]}`)
	var r report.Engine
	var err error
	used := allocated(func() {
		r, err = decode(rig.Context(t), text, Question{Parts: report.PartCQs, Budget: NewBudget(budget)})
	})
	if err != nil || r.QPs != nil || r.CQs == nil {
		t.Errorf("%+v, %v", r, err)
	}
	t.Logf("%d octets were allocated for what was stepped over", used)
}

// TestHostileReportOverSocket: 18 MB of empty elements from another user's process
// fail, and the end of the context stops reading in the middle of them.
func TestHostileReportOverSocket(t *testing.T) {
	path := t.TempDir() + "/s"
	l, err := net.Listen("unix", path)
	rig.Must(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, begins+`,"qps":[{}`)
		block := []byte(strings.Repeat(`,{}`, 1<<16))
		for range 96 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
		io.WriteString(w, `]}`)
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	e := Endpoint{Path: path, PID: os.Getpid(), Adapter: 1, UID: os.Geteuid()}
	_, err = e.Ask(rig.Context(t), Question{Budget: NewBudget(OtherBudget)})
	rig.Says(t, err, ErrTooMuch, "it is left out", fmt.Sprint("of user ", os.Geteuid()))

	ctx, cancel := context.WithCancelCause(rig.Context(t))
	enough := errors.New("enough")
	_, err = e.Ask(ctx, Question{Parts: report.PartQPs, Budget: NewBudget(OwnBudget), Progress: func() { cancel(enough) }})
	rig.Says(t, err, enough)
}

// TestParts: a report has the parts that were asked for, and no others.
func TestParts(t *testing.T) {
	for _, text := range []string{"", "devices,", "all", "devices,qp", " qps"} {
		if p, err := report.ParseParts(text); err == nil {
			t.Errorf("%q is %v", text, p)
		}
	}
	if p, err := report.ParseParts(report.AllParts.String()); err != nil || p != report.AllParts {
		t.Errorf("%v, %v", p, err)
	}
	var whole report.Engine
	var seed uint64
	full(reflect.ValueOf(&whole).Elem(), &seed)
	whole.Schema = report.Schema
	e, _ := serve(t, saying(whole)) // it always sends all parts
	got, err := e.Ask(rig.Context(t), Question{Parts: report.PartCQs | report.PartMRs})
	rig.Must(t, err)
	if !reflect.DeepEqual(got.CQs, whole.CQs) || !reflect.DeepEqual(got.MRs, whole.MRs) || got.QPs != nil || got.Devices != nil {
		t.Errorf("%+v", got)
	}
	_, err = e.get(rig.Context(t), "/v1/report?parts=everything")
	rig.Says(t, err, nil, `no part "everything"`, "devices,flows")
}

// TestHostileCapture: a packet is no longer than packets can be, and a frame is no
// longer than its contents.
func TestHostileCapture(t *testing.T) {
	packet := func(change func(*report.Packet)) []byte {
		p := report.Packet{Device: "eth0", Length: 60, Data: make([]byte, 60)}
		change(&p)
		b := appendHead(nil, framePacket, packetHead+len(p.Device)+len(p.Data))
		b = append(b, make([]byte, packetHead)...)
		binary.BigEndian.PutUint32(b[frameHead+19:], uint32(p.Length))
		b[frameHead+23] = uint8(len(p.Device))
		return append(append(b, p.Device...), p.Data...)
	}
	for what, text := range map[string][]byte{
		"long":        packet(func(p *report.Packet) { p.Length = report.MaxLength + 1 }),
		"longest":     packet(func(p *report.Packet) { p.Length = 1<<32 - 1 }),
		"short":       packet(func(p *report.Packet) { p.Length = 59 }),
		"no kind":     {'x', 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0},
		"long frame":  {framePacket, 0xff, 0xff, 0xff, 0xff},
		"short frame": {framePacket, 0, 0, 0, 3, 1, 2, 3},
		"long stream": {frameStream, 0, 0, 0x10, 1},
		"no stream":   {frameStream, 0, 0, 0, 2, '{', 'x'},
		"long name":   packet(func(p *report.Packet) { p.Device, p.Data = strings.Repeat("d", 255), nil })[:frameHead+packetHead+100],
	} {
		if what == "long name" {
			binary.BigEndian.PutUint32(text[1:], packetHead+100)
		}
		if b, err := (&frames{from: bytes.NewReader(text)}).next(); !errors.Is(err, errFrame) {
			t.Errorf("%s: %+v, %v", what, b, err)
		}
	}
	// A batch without an end comes in pieces, each of bounded size.
	one := packet(func(p *report.Packet) { p.Data = nil })
	f := frames{from: io.MultiReader(bytes.NewReader(bytes.Repeat(one, 1<<20)))}
	for n := 0; ; {
		b, err := f.next()
		if n += len(b.Packets); err == nil {
			if len(b.Packets) > batchMemory/perPacket+1 {
				t.Fatalf("%d packets at once", len(b.Packets))
			}
			continue
		}
		if err != io.ErrUnexpectedEOF || n == 0 {
			t.Errorf("after %d packets: %v", n, err)
		}
		break
	}
}

// FuzzReport: any text causes no more than an error. A report that was decoded is the
// same after it is encoded and decoded again.
func FuzzReport(f *testing.F) {
	var whole report.Engine
	var seed uint64
	full(reflect.ValueOf(&whole).Elem(), &seed)
	whole.Schema = report.Schema
	var b bytes.Buffer
	if err := encode(&b, whole, slices.Values(whole.MRs)); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(begins + `,"qps":null,"mrs":[],"x":[{"y":{}}]}`))
	f.Add([]byte(begins + `,"flows":[{"id":"0x1","tcp":{"counters":[{}]}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		q := func() Question { return Question{Parts: report.AllParts, Budget: NewBudget(1 << 20)} }
		r, err := decode(context.Background(), bytes.NewReader(text), q())
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := encode(&b, r, slices.Values(r.MRs)); err != nil {
			return // a time in a year that JSON cannot encode
		}
		again, err := decode(context.Background(), bytes.NewReader(b.Bytes()), Question{Parts: report.AllParts, Budget: NewBudget(1 << 30)})
		if r.MRs == nil {
			again.MRs = nil // encode was given them separately
		}
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("%+v, %v; it was %+v\n%s", again, err, r, b.Bytes())
		}
	})
}

// FuzzCapture: any octets cause no more than an error. A batch that was decoded is the
// same after it is encoded and decoded again.
func FuzzCapture(f *testing.F) {
	var batch report.Batch
	var seed uint64
	full(reflect.ValueOf(&batch).Elem(), &seed)
	text, err := appendBatch(nil, batch)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(append(slices.Clone(text), text[:len(text)/2]...))
	f.Fuzz(func(t *testing.T, text []byte) {
		in := frames{from: bytes.NewReader(text)}
		for {
			b, err := in.next()
			if err != nil {
				return
			}
			if in.part {
				continue
			}
			said, err := appendBatch(nil, b)
			if err != nil {
				return // a stream whose names grow when they are escaped
			}
			again, err := (&frames{from: bytes.NewReader(said)}).next()
			if err != nil || !reflect.DeepEqual(again, b) {
				t.Fatalf("%+v, %v; it was %+v", again, err, b)
			}
		}
	})
}
