package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/stag-rdma/stag/offload/report"
)

// Names in HTTP. Every answer names its schema in the header schemaHeader. A capture
// that has begun says in the trailer errTrailer why it ended.
const (
	schemaHeader = "Stag-Schema"
	errTrailer   = "Stag-Error"
)

func sendCapture(w http.ResponseWriter, r *http.Request, source Source) {
	filter, err := parseFilter(r.URL.RawQuery)
	if err != nil {
		http.Error(w, oneLine(err.Error()), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Trailer", errTrailer)
	out := http.NewResponseController(w)
	var begun bool
	var text []byte
	err = source.Capture(r.Context(), filter, func(b report.Batch) (err error) {
		begun = true
		if text, err = appendBatch(text[:0], b); err != nil {
			return err
		}
		_, err = w.Write(text)
		return errors.Join(err, out.Flush())
	})
	switch {
	case err == nil:
	case begun:
		w.Header().Set(errTrailer, url.QueryEscape(err.Error()))
	default:
		w.Header().Del("Trailer")
		http.Error(w, oneLine(err.Error()), http.StatusConflict)
	}
}

// query returns a filter as the parameters of a request.
func query(f report.Filter) url.Values {
	v := url.Values{}
	if f.Device != "" {
		v.Set("device", f.Device)
	}
	for name, n := range map[string]uint64{"flow": uint64(f.Flow), "qp": uint64(f.QP), "snaplen": uint64(f.SnapLen)} {
		if n != 0 {
			v.Set(name, strconv.FormatUint(n, 10))
		}
	}
	return v
}

// parseFilter reverses query. An unknown parameter is an error.
func parseFilter(text string) (f report.Filter, err error) {
	v, err := url.ParseQuery(text)
	if err != nil {
		return f, fmt.Errorf("the parameters of a capture: %w", err)
	}
	for name := range v {
		var e error
		switch name {
		case "device":
			f.Device = v.Get(name)
		case "flow":
			f.Flow, e = number[uint32](v, name, 32)
		case "qp":
			f.QP, e = number[uint32](v, name, 32)
		case "snaplen":
			f.SnapLen, e = number[int](v, name, 31)
		default:
			e = fmt.Errorf("a capture has no parameter %q: device, flow, qp, snaplen", name)
		}
		err = errors.Join(err, e)
	}
	return f, err
}

func number[T int | uint32](v url.Values, name string, bits int) (T, error) {
	n, err := strconv.ParseUint(v.Get(name), 10, bits)
	if err != nil {
		return 0, fmt.Errorf("%s is %q: it must be a number of %d bits", name, v.Get(name), bits)
	}
	return T(n), nil
}

// Capture is a stream of packets from an engine.
type Capture struct {
	ctx  context.Context
	from Endpoint
	resp *http.Response
	in   frames
}

// Next waits for the next batch. Next returns io.EOF when the engine has closed in good
// order. Next returns an error with io.ErrUnexpectedEOF and ErrGone when the engine
// died. Next returns the cause of ctx's end if ctx ended first.
func (c *Capture) Next() (report.Batch, error) {
	b, err := c.in.next()
	switch {
	case err == nil:
		return b, nil
	case errors.Is(err, errFrame):
		return report.Batch{}, fmt.Errorf("%w: pid %d, adapter %d: %w", ErrSchema, c.from.PID, c.from.Adapter, err)
	case err != io.EOF:
		return report.Batch{}, c.from.gone(c.ctx, fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err))
	}
	if text := c.resp.Trailer.Get(errTrailer); text != "" {
		if plain, e := url.QueryUnescape(text); e == nil {
			text = plain
		}
		err = errors.New(printable(text))
	}
	return report.Batch{}, err
}

// Close ends the capture. Next fails after Close.
func (c *Capture) Close() error { return c.resp.Body.Close() }
