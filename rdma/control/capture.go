package control

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/stag-rdma/stag/rdma/report"
)

// errTrailer is where a capture that has begun says why it ended.
const errTrailer = "Stag-Error"

func sendCapture(w http.ResponseWriter, r *http.Request, source Source) {
	filter, err := parseFilter(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-gob")
	w.Header().Set("Trailer", errTrailer)
	out := http.NewResponseController(w)
	enc := gob.NewEncoder(w)
	var begun bool
	err = source.Capture(r.Context(), filter, func(b report.Batch) error {
		begun = true
		return errors.Join(enc.Encode(b), out.Flush())
	})
	switch {
	case err == nil:
	case begun:
		w.Header().Set(errTrailer, url.QueryEscape(err.Error()))
	default:
		w.Header().Del("Trailer")
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// query is a filter as the parameters of a request.
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

// parseFilter is the reverse of query.
func parseFilter(v url.Values) (f report.Filter, err error) {
	f.Device = v.Get("device")
	number := func(name string, bits int) uint64 {
		if !v.Has(name) {
			return 0
		}
		n, e := strconv.ParseUint(v.Get(name), 10, bits)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%s is %q: it must be a number", name, v.Get(name)))
		}
		return n
	}
	f.Flow, f.QP, f.SnapLen = uint32(number("flow", 32)), uint32(number("qp", 32)), int(number("snaplen", 31))
	return f, err
}

// Capture is packets from an engine, as they come.
type Capture struct {
	body    io.ReadCloser
	dec     *gob.Decoder
	trailer http.Header
}

// Next waits for the next batch. io.EOF when the engine has closed in good
// order, io.ErrUnexpectedEOF when it died.
func (c *Capture) Next() (report.Batch, error) {
	var b report.Batch
	err := c.dec.Decode(&b)
	if err == io.EOF {
		if text := c.trailer.Get(errTrailer); text != "" {
			if plain, e := url.QueryUnescape(text); e == nil {
				text = plain
			}
			return b, errors.New(text)
		}
	}
	return b, err
}

// Close ends the capture. Next then fails.
func (c *Capture) Close() error { return c.body.Close() }
