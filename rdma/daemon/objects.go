package daemon

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma/proto"
)

// object is something that a handle of a client names.
type object interface {
	kind() proto.Kind
	// close ends the object, and gives its charge back. An object whose close has failed
	// stays as it was.
	close() error
}

// objects is a client's table of handles. It is safe for concurrent use.
type objects struct {
	mu   sync.Mutex // held briefly
	all  map[uint64]object
	over bool // the client has ended: nothing can be added
}

// add gives o a handle. It fails when the client has ended.
func (t *objects) add(handle uint64, o object) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return unix.ECONNRESET
	}
	t.all[handle] = o
	return nil
}

// remove takes a handle away.
func (t *objects) remove(handle uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, handle)
}

// finish returns all objects, and leaves an empty table to which nothing can be added.
func (t *objects) finish() map[uint64]object {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.all
	t.all, t.over = map[uint64]object{}, true
	return all
}

func (t *objects) find(handle uint64) object {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[handle]
}

// named returns the object of a handle. The object must be of type T.
func named[T object](t *objects, handle uint64, what string) (o T, err error) {
	o, ok := t.find(handle).(T)
	if !ok {
		return o, fmt.Errorf("handle %d names no %s of this client: %w", handle, what, unix.EINVAL)
	}
	return o, nil
}

// optional is named for a handle that may be 0.
func optional[T object](t *objects, handle uint64, what string) (o T, err error) {
	if handle == 0 {
		return o, nil
	}
	return named[T](t, handle, what)
}
