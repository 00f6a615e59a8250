package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma/report"
)

// Source is what a server tells about. It is used by several goroutines.
type Source interface {
	// Report is a snapshot. It ends with ctx.
	Report(ctx context.Context) (report.Engine, error)
	// Capture calls f with what engines receive and send from now on, until ctx
	// ends, f fails, or the engine closes, which is no error. While f is at work
	// packets are kept as far as there is room, and counted otherwise.
	Capture(ctx context.Context, filter report.Filter, f func(report.Batch) error) error
}

// Server answers at one socket.
type Server struct {
	path string
	http http.Server
	done chan struct{} // closed when nobody accepts any more
	once sync.Once
	err  error
}

// Serve answers for source at path until Close. A socket there that nobody
// listens at is taken over. log gets a line for each caller that is refused.
func Serve(path string, source Source, to *slog.Logger) (*Server, error) {
	l, err := listen(path)
	if err != nil {
		return nil, err
	}
	s := &Server{path: path, done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/report", func(w http.ResponseWriter, r *http.Request) { sendReport(w, r, source) })
	mux.HandleFunc("GET /v1/capture", func(w http.ResponseWriter, r *http.Request) { sendCapture(w, r, source) })
	s.http = http.Server{
		Handler:           allowed(mux, to),
		ReadHeaderTimeout: 5 * time.Second,
		ConnContext:       withPeer,
		ErrorLog:          log.New(slogWriter{to}, "", 0),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			to.Error("control socket closed", "path", path, "err", err)
		}
	}()
	return s, nil
}

// listen makes the socket with the mode that it keeps: the directory is ours
// alone or, for root's, nobody else can write to it, so nobody gets in between.
func listen(path string) (net.Listener, error) {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("control socket %s: another process answers there", path)
	}
	if err := sweep(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	return l, nil
}

// Close ends the server and everything that it is sending, and removes the
// socket. It may be called twice.
func (s *Server) Close() error {
	s.once.Do(func() {
		s.err = s.http.Close()
		<-s.done
	})
	return s.err
}

// peerKey is what the caller's credentials are known by in a context.
type peerKey struct{}

// withPeer notes who is at the other end of a connection.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	var cred *unix.Ucred
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { cred, _ = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	}
	return context.WithValue(ctx, peerKey{}, cred)
}

// allowed answers root and the engine's own user only.
func allowed(next http.Handler, to *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cred, _ := r.Context().Value(peerKey{}).(*unix.Ucred)
		if cred == nil || cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
			to.Warn("control socket: caller refused", "path", r.URL.Path, "cred", cred)
			http.Error(w, fmt.Sprintf("only root and user %d may look into this engine", os.Geteuid()), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func sendReport(w http.ResponseWriter, r *http.Request, source Source) {
	e, err := source.Report(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(e) // the caller may have gone
}

// slogWriter passes on what package http has to say.
type slogWriter struct{ to *slog.Logger }

func (w slogWriter) Write(b []byte) (int, error) {
	w.to.Warn("control socket: " + string(b))
	return len(b), nil
}
