package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/stag-rdma/stag/offload/report"
)

// maxUpgrade is how many octets an answer may have.
const maxUpgrade = 4 << 20

// sendUpgrade upgrades the process. The answer is one line of JSON for each report.Upgrade.
// The last line has done, unless the upgrade failed after it had begun: then it is a reason.
func sendUpgrade(w http.ResponseWriter, r *http.Request, source Source) {
	w.Header().Set("Content-Type", "application/json")
	out, lines := http.NewResponseController(w), json.NewEncoder(w)
	begun := false
	say := func(u any) {
		begun = true
		if lines.Encode(u) == nil {
			_ = out.Flush() // an error means that the caller has gone, which ends r.Context
		}
	}
	u, err := source.Upgrade(r.Context(), func(u report.Upgrade) { say(u) })
	switch {
	case err == nil:
		u.Done = true
		say(u)
	case begun:
		say(failedUpgrade{Error: oneLine(err.Error())})
	default:
		http.Error(w, oneLine(err.Error()), statusOfDrain(r, err))
	}
}

// failedUpgrade is the last line of an upgrade that failed after it had begun.
type failedUpgrade struct {
	Error string `json:"error"`
}

// Upgrade makes the process start its successor and hand all connections over. Upgrade calls
// progress for each step. If ctx ends before the connections are handed over, they stay.
func (e Endpoint) Upgrade(ctx context.Context, progress func(report.Upgrade)) (report.Upgrade, error) {
	resp, err := e.request(ctx, http.MethodPost, "/v1/upgrade")
	if err != nil {
		return report.Upgrade{}, err
	}
	defer resp.Body.Close()
	lines := json.NewDecoder(io.LimitReader(resp.Body, maxUpgrade))
	for {
		var line struct {
			report.Upgrade
			failedUpgrade
		}
		if err := lines.Decode(&line); err != nil {
			return report.Upgrade{}, e.gone(ctx, fmt.Errorf("no result of the upgrade: %w", err))
		}
		for i, why := range line.Lost {
			line.Lost[i] = printable(why)
		}
		for i, what := range line.Warnings {
			line.Warnings[i] = printable(what)
		}
		line.Step = printable(line.Step)
		switch {
		case line.Error != "":
			return report.Upgrade{}, fmt.Errorf("pid %d: %s", e.PID, printable(line.Error))
		case line.Done:
			return line.Upgrade, nil
		}
		progress(line.Upgrade)
	}
}
