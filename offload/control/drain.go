package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/stag-rdma/stag/offload/report"
)

// progressEvery is how often a caller learns how far the draining of a port is.
const progressEvery = 500 * time.Millisecond

// maxDrain is how many octets an answer may have. An engine may want to do harm.
const maxDrain = 4 << 20

// sendDrain drains the port of the parameter device, or takes the drain back. The answer
// is one line of JSON for each report.Drain. The last line has done, unless the drain
// failed after it had begun.
func sendDrain(w http.ResponseWriter, r *http.Request, source Source, undo bool) {
	device := r.URL.Query().Get("device")
	if device == "" {
		http.Error(w, "name the port: device=NAME", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	out, lines := http.NewResponseController(w), json.NewEncoder(w)
	begun, last := false, time.Now()
	say := func(d report.Drain) {
		begun = true
		if lines.Encode(d) == nil {
			_ = out.Flush() // an error means that the caller has gone, which ends r.Context
		}
	}
	var (
		d   report.Drain
		err error
	)
	if undo {
		d, err = source.Undrain(device)
	} else {
		d, err = source.Drain(r.Context(), device, func(d report.Drain) {
			if time.Since(last) >= progressEvery {
				last = time.Now()
				say(d)
			}
		})
	}
	switch {
	case err == nil:
		d.Done = true
		say(d)
	case !begun:
		http.Error(w, oneLine(err.Error()), statusOfDrain(r, err))
	}
}

func statusOfDrain(r *http.Request, err error) int {
	if errors.Is(err, ErrGone) || r.Context().Err() != nil {
		return http.StatusGone
	}
	return http.StatusConflict
}

// Drain makes the engine move all connections of a port to other ports. Drain calls
// progress from time to time. If ctx ends first, no further connection moves, and the
// port stays drained.
func (e Endpoint) Drain(ctx context.Context, device string, progress func(report.Drain)) (report.Drain, error) {
	return e.drain(ctx, "drain", device, progress)
}

// Undrain lets connections come to a port again.
func (e Endpoint) Undrain(ctx context.Context, device string) (report.Drain, error) {
	return e.drain(ctx, "undrain", device, func(report.Drain) {})
}

func (e Endpoint) drain(ctx context.Context, what, device string, progress func(report.Drain)) (d report.Drain, err error) {
	resp, err := e.request(ctx, http.MethodPost, "/v1/"+what+"?device="+url.QueryEscape(device))
	if err != nil {
		return d, err
	}
	defer resp.Body.Close()
	lines := json.NewDecoder(io.LimitReader(resp.Body, maxDrain))
	for {
		var d report.Drain
		if err := lines.Decode(&d); err != nil {
			return d, e.gone(ctx, fmt.Errorf("no result of the drain: %w", err))
		}
		for i := range d.Stay {
			d.Stay[i].Why = printable(d.Stay[i].Why)
		}
		if d.Done {
			return d, nil
		}
		progress(d)
	}
}
