package control

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/report"
)

// Source is where a server gets its answers from. Several goroutines may call it at
// once.
type Source interface {
	// Report returns a snapshot of the given parts, without report.PartMRs. Report ends
	// when ctx ends. An error that wraps ErrGone means that the engine is being closed.
	Report(ctx context.Context, parts report.Parts) (report.Engine, error)
	// Regions yields the entries of the table one by one, because a table can have very
	// many. Regions ends early when the engine is being closed.
	Regions(yield func(report.MR) bool)
	// Capture calls f with the packets that engines receive and send from now on.
	// Capture ends when ctx ends, when f fails, or when the engine closes, which is no
	// error. While f runs, packets are kept if there is room. Other packets are lost
	// and counted.
	Capture(ctx context.Context, filter report.Filter, f func(report.Batch) error) error
	// Drain moves the connections of a port to other ports, and keeps connections from
	// coming to the port. Drain calls progress now and then, until it returns.
	Drain(ctx context.Context, device string, progress func(report.Drain)) (report.Drain, error)
	// Undrain lets connections come to a port again.
	Undrain(device string) (report.Drain, error)
	// Upgrade starts the successor of the process and hands all connections over. Upgrade
	// calls progress for each step. If ctx ends before that, the connections stay.
	Upgrade(ctx context.Context, progress func(report.Upgrade)) (report.Upgrade, error)
}

// Server answers requests at one socket.
type Server struct {
	path    string
	http    http.Server
	log     *slog.Logger
	stop    context.CancelFunc // function that ends all answers that are being sent
	callers callers
	done    chan struct{} // channel that is closed when the server accepts no more connections
	once    sync.Once
	err     error
}

// Serve answers for source at path until Close. If a socket without a listening process
// exists at path, Serve replaces it. log gets a line for each caller that is refused.
// At debug level it also gets a line for each caller that is answered.
func Serve(path string, source Source, log *slog.Logger) (*Server, error) {
	l, err := listen(path)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{path: path, log: log, stop: stop, callers: newCallers(), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/report", func(w http.ResponseWriter, r *http.Request) { sendReport(w, r, source) })
	mux.HandleFunc("GET /v1/capture", func(w http.ResponseWriter, r *http.Request) { sendCapture(w, r, source) })
	mux.HandleFunc("POST /v1/drain", func(w http.ResponseWriter, r *http.Request) { sendDrain(w, r, source, false) })
	mux.HandleFunc("POST /v1/undrain", func(w http.ResponseWriter, r *http.Request) { sendDrain(w, r, source, true) })
	mux.HandleFunc("POST /v1/upgrade", func(w http.ResponseWriter, r *http.Request) { sendUpgrade(w, r, source) })
	s.http = http.Server{
		Handler:           s.allowed(mux),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withPeer,
		ConnState:         s.callers.note,
		ErrorLog:          slogger(log),
	}
	if substituted(path) {
		log.Warn("the directory for control sockets is another user's: this one is elsewhere, where stag finds it", "directory", Dir(), "path", path)
	}
	log.Debug("control socket opened", "path", path)
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("control socket closed", "path", path, "err", err)
		}
	}()
	return s, nil
}

// listen makes the socket. The socket has mode 0600 from the beginning.
func listen(path string) (net.Listener, error) {
	if errors.Is(knock(path), unix.ECONNREFUSED) {
		if err := sweep(path); err != nil {
			return nil, err
		}
	}
	c := net.ListenConfig{Control: private}
	l, err := c.Listen(context.Background(), "unix", path)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, fmt.Errorf("control socket %s: another process answers there, or the file is no socket: end the process, or remove the file", path)
	case err != nil:
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	return l, nil
}

// private sets the mode of a socket that is about to be bound. Linux gives the file the
// mode of the socket, 0600.
func private(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
	return errors.Join(err, failed)
}

// grace is how long Close waits for answers that have begun.
var grace = 250 * time.Millisecond

// Close removes the socket and ends every answer. An answer ends in good order if the
// caller reads it. When Close returns, no goroutine of the server runs any more. Close
// may be called twice.
func (s *Server) Close() error {
	s.once.Do(func() {
		os.Remove(s.path) // the listener removes the file again; until then a tool that finds the file gets no answer
		s.stop()
		s.callers.rest(grace)
		s.err = s.http.Close()
		<-s.done
		s.http.Close() // this Close is for connections that were accepted too late for the first Close
		s.callers.leave()
	})
	return s.err
}

// peerKey is the context key of the caller's credentials.
type peerKey struct{}

// withPeer stores the credentials of the process at the other end of a connection.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	cred, err := PeerOf(c)
	if err != nil {
		cred = nil // a caller without credentials gets no answer
	}
	return context.WithValue(ctx, peerKey{}, cred)
}

// allowed passes on requests of root and of the engine's own user. allowed refuses all
// other callers.
func (s *Server) allowed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cred, _ := r.Context().Value(peerKey{}).(*unix.Ucred)
		if cred == nil || cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
			s.log.Warn("control socket: caller refused", "path", r.URL.Path, "cred", cred)
			http.Error(w, fmt.Sprintf("only root and user %d may look into this engine", os.Geteuid()), http.StatusForbidden)
			return
		}
		s.log.Debug("control socket: asked", "path", r.URL.Path, "query", r.URL.RawQuery, "pid", cred.Pid, "user", cred.Uid)
		w.Header().Set(schemaHeader, strconv.Itoa(report.Schema))
		next.ServeHTTP(w, r)
	})
}

func sendReport(w http.ResponseWriter, r *http.Request, source Source) {
	parts := report.AllParts
	if v := r.URL.Query(); v.Has(partsParameter) {
		var err error
		if parts, err = report.ParseParts(v.Get(partsParameter)); err != nil {
			http.Error(w, oneLine(err.Error()), http.StatusBadRequest)
			return
		}
	}
	e, err := source.Report(r.Context(), parts)
	if err != nil {
		http.Error(w, oneLine(err.Error()), statusOf(r, err))
		return
	}
	var regions iter.Seq[report.MR]
	if parts.Any(report.PartMRs) {
		regions = source.Regions
	}
	w.Header().Set("Content-Type", "application/json")
	_ = encode(w, e, regions) // an error means that the caller has gone
}

// partsParameter is the parameter that names the parts of a report.
const partsParameter = "parts"

// statusOf returns the HTTP status for err. A closing engine has another status than
// one that cannot answer.
func statusOf(r *http.Request, err error) int {
	if errors.Is(err, ErrGone) || r.Context().Err() != nil {
		return http.StatusGone
	}
	return http.StatusServiceUnavailable
}

// oneLine puts the lines of a text on one line.
func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") }

// slogger returns a log.Logger for package http. The log.Logger passes each message on
// to the slog.Logger.
func slogger(to *slog.Logger) *log.Logger {
	return log.New(slogWriter{to}, "", 0)
}

type slogWriter struct{ to *slog.Logger }

func (w slogWriter) Write(b []byte) (int, error) {
	w.to.Warn("control socket: " + strings.TrimSpace(string(b)))
	return len(b), nil
}
