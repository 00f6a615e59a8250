package upgrade

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A message has a head, a JSON document, and octets. Descriptors travel with the head.
//
//	0      1       2        4                8            16
//	| kind | files | magic  | document length | data length |
const (
	headKind  = 0
	headFiles = 1
	headMagic = 2
	headDoc   = 4
	headData  = 8
	headLen   = 16

	magic = 0x5547 // "UG"
)

// Limits of a message that is received.
const (
	maxFiles = 253     // the kernel passes so many at a time (SCM_MAX_FD)
	maxDoc   = 1 << 20 // octets
	maxData  = 1 << 30 // octets: two queues of a connection, and an upper layer
)

// kind is the kind of a message.
type kind uint8

const (
	kindHello kind = iota + 1
	kindPort
	kindReady
	kindRefuse
	kindObject
	kindFlow
	kindComplete
	kindReleased
	kindBound
	kindCommit
	kindTaken
	kindDone
	kindAbort

	kinds
)

var kindNames = [kinds]string{"", "hello", "port", "ready", "refuse", "object", "flow", "complete", "released", "bound", "commit", "taken", "done", "abort"}

func (k kind) String() string {
	if k > 0 && k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("message %d", uint8(k))
}

// message is a message that was received.
type message struct {
	kind  kind
	doc   []byte
	data  []byte
	files []*os.File // the receiver owns them
}

// close closes the files that nobody has taken.
func (m *message) close() {
	for _, f := range m.files {
		if f != nil {
			f.Close()
		}
	}
	m.files = nil
}

// link is one end of the connection between the two processes.
type link struct {
	conn *net.UnixConn
	end  time.Time // each call fails at this time
}

// errGone says that the other process has closed the connection, or has died.
var errGone = errors.New("the other process has closed the connection, or has died")

// until sets the time at which calls fail.
func (l *link) until(end time.Time) error {
	l.end = end
	return l.conn.SetDeadline(end)
}

// send sends a message. doc becomes JSON. The files still belong to the caller.
func (l *link) send(k kind, doc any, data [][]byte, files ...*os.File) error {
	text, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("send %v: %w", k, err)
	}
	if len(files) > maxFiles {
		return fmt.Errorf("send %v: %d descriptors, and %d can be sent at a time", k, len(files), maxFiles)
	}
	var head [headLen]byte
	head[headKind], head[headFiles] = byte(k), byte(len(files))
	binary.LittleEndian.PutUint16(head[headMagic:], magic)
	binary.LittleEndian.PutUint32(head[headDoc:], uint32(len(text)))
	size := 0
	for _, b := range data {
		size += len(b)
	}
	binary.LittleEndian.PutUint64(head[headData:], uint64(size))
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := l.conn.WriteMsgUnix(head[:], rights, nil); err != nil {
		return fmt.Errorf("send %v: %w", k, gone(err))
	}
	buffers := net.Buffers(append([][]byte{text}, data...))
	if _, err := buffers.WriteTo(l.conn); err != nil {
		return fmt.Errorf("send %v: %w", k, gone(err))
	}
	return nil
}

// gone adds errGone to errors that mean it.
func gone(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("%w (%w)", errGone, err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the other process is late: %w", err)
	}
	return err
}

// receive receives the next message. The caller must close it.
func (l *link) receive() (m *message, err error) {
	m = &message{}
	defer func() {
		if err != nil {
			m.close()
			m, err = nil, gone(err)
		}
	}()
	head, err := l.receiveHead(m)
	if err != nil {
		return m, err
	}
	m.kind = kind(head[headKind])
	doc, data := uint64(binary.LittleEndian.Uint32(head[headDoc:])), binary.LittleEndian.Uint64(head[headData:])
	switch {
	case binary.LittleEndian.Uint16(head[headMagic:]) != magic || m.kind == 0 || m.kind >= kinds:
		return m, errors.New("the other process does not speak the protocol of upgrades")
	case doc > maxDoc || data > maxData:
		return m, fmt.Errorf("%v of %d and %d octets is too long", m.kind, doc, data)
	case int(head[headFiles]) != len(m.files):
		return m, fmt.Errorf("%v with %d of %d descriptors: is the limit of open files (ulimit -n) too low?", m.kind, len(m.files), head[headFiles])
	}
	if m.doc, err = readAll(l.conn, int64(doc)); err != nil {
		return m, err
	}
	m.data, err = readAll(l.conn, int64(data))
	return m, err
}

// receiveHead receives the head of a message, and the descriptors.
func (l *link) receiveHead(m *message) (head [headLen]byte, err error) {
	rights := make([]byte, unix.CmsgSpace(4*maxFiles))
	for got := 0; got < headLen; {
		n, nr, _, _, err := l.conn.ReadMsgUnix(head[got:], rights)
		files, failed := received(rights[:nr])
		m.files = append(m.files, files...)
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err = errors.Join(err, failed); err != nil {
			return head, err
		}
		got += n
	}
	return head, nil
}

// received returns the descriptors in control messages.
func received(oob []byte) (files []*os.File, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		fds, failed := unix.ParseUnixRights(&c)
		err = errors.Join(err, failed)
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, err
}

// readAll reads n octets. It does not trust n: memory grows as the octets arrive.
func readAll(r io.Reader, n int64) ([]byte, error) {
	if n <= 64<<10 {
		b := make([]byte, n)
		_, err := io.ReadFull(r, b)
		return b, err
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, n); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// expect receives a message of kind k, and decodes its document into doc. A refusal or an
// abort becomes an error. The caller must close the message.
func (l *link) expect(k kind, doc any) (*message, error) {
	m, err := l.receive()
	if err != nil {
		return nil, fmt.Errorf("wait for %v: %w", k, err)
	}
	if err = m.is(k, doc); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// is checks that m is of kind k, and decodes its document.
func (m *message) is(k kind, doc any) error {
	if m.kind == kindRefuse || m.kind == kindAbort {
		var why reason
		if err := json.Unmarshal(m.doc, &why); err != nil {
			return fmt.Errorf("read %v: %w", m.kind, err)
		}
		if m.kind == kindRefuse {
			return &Refusal{Why: why.Why}
		}
		return fmt.Errorf("%w: %s", ErrAborted, why.Why)
	}
	if m.kind != k {
		return fmt.Errorf("the other process says %v instead of %v", m.kind, k)
	}
	if doc == nil {
		return nil
	}
	if err := json.Unmarshal(m.doc, doc); err != nil {
		return fmt.Errorf("read %v: %w", k, err)
	}
	return nil
}

// Refusal is the error of an old process whose successor has refused.
type Refusal struct{ Why string }

func (r *Refusal) Error() string { return "the new process refuses: " + r.Why }

// ErrAborted is the error of a new process when the old one keeps its connections.
var ErrAborted = errors.New("the old process keeps its connections")
