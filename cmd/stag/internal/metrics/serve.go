package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
)

// Path is the HTTP path at which Serve answers scrapes.
const Path = "/metrics"

// atOnce is the largest number of scrapes at the same time. Each scrape asks every engine,
// and usually there are few clients.
const atOnce = 8

// Listen opens address for scrapes.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is in use by another process: choose another --listen, or find that process with ss -ltnp", address)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is no address of this host: choose one of ip address show for --listen", address)
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("this user may not listen at %s (%w): choose a port above 1023 for --listen, or run as root", address, err)
	}
	return nil, fmt.Errorf("listen at %s: %w", address, err)
}

// Serve answers scrapes at l until ctx ends. Then it completes the scrapes that have
// started, and returns.
func (x *Exporter) Serve(ctx context.Context, l net.Listener) error {
	server := http.Server{
		Handler:           x.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       5 * time.Minute, // longer than usual scrape intervals
		ErrorLog:          slog.NewLogLogger(x.Log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve metrics: %w", err)
	case <-ctx.Done():
	}
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*engines.Patience)
	defer cancel()
	if err := server.Shutdown(finish); err != nil {
		return errors.Join(fmt.Errorf("end the scrapes in progress: %w", err), server.Close())
	}
	return nil
}

func (x *Exporter) handler() http.Handler {
	mux := http.NewServeMux()
	slots := make(chan struct{}, atOnce)
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			http.Error(w, fmt.Sprintf("%d scrapes are in progress already", atOnce), http.StatusServiceUnavailable)
			return
		}
		from := x.registry(r.Context(), patience(r))
		promhttp.HandlerFor(from, promhttp.HandlerOpts{
			ErrorLog:      slog.NewLogLogger(x.Log.Handler(), slog.LevelWarn),
			ErrorHandling: promhttp.ContinueOnError,
		}).ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /{$}", index)
	return mux
}

// patience returns how long engines may take to answer a scrape. This time is shorter
// than the timeout of Prometheus, so that one silent engine does not cost the answers
// of the other engines.
func patience(r *http.Request) time.Duration {
	seconds, err := strconv.ParseFloat(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if err != nil || !(seconds > 0 && seconds < 3600) {
		return engines.Patience
	}
	return min(engines.Patience, time.Duration(0.8*seconds*float64(time.Second)))
}

func index(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, `<!DOCTYPE html>
<html lang="en">
<head><title>stag</title></head>
<body><h1>stag</h1><p><a href="%s">Metrics</a> of the stag engines of this host, for Prometheus.</p></body>
</html>
`, Path)
}
