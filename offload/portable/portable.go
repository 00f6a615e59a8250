// Package portable defines how an upper layer leaves its process, and continues in
// another one. The octets of an Object are the business of its owner. Whoever carries
// Objects between processes (offload/upgrade) does not look into them.
package portable

import (
	"errors"
	"fmt"
	"os"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

// ErrUpgraded is the error that the upper layer of a connection gets, and everything that
// the program has of it, when the connection has continued in another process. It is no
// fault.
var ErrUpgraded = errors.New("the connection continues in another process")

// ErrKind is returned for an Object of a kind that the importer does not know.
var ErrKind = errors.New("unknown kind of object")

// Limits of an Object.
const (
	MaxKind  = 64       // octets of the name of the format
	MaxData  = 64 << 20 // octets of the state
	MaxFiles = 64       // descriptors
)

// Object is the state of something that another process continues.
type Object struct {
	// Kind names the format of Data and its version, such as "octets.echo/1". A process
	// that does not know the kind refuses the upgrade, and everything stays where it is.
	Kind string
	// Data is the state. All instants in it must be ages, because the clocks of two
	// processes differ. It must hold copies of octets that are in memory of the process.
	Data []byte
	// Files are descriptors that belong to the state. Whoever exports an Object still owns
	// them, and the Object has duplicates in the other process. Whoever imports an Object
	// owns its files.
	Files []*os.File
}

// Check returns an error if o exceeds a limit.
func (o *Object) Check() error {
	switch {
	case o.Kind == "" || len(o.Kind) > MaxKind:
		return fmt.Errorf("an object whose kind has %d octets: want 1 to %d", len(o.Kind), MaxKind)
	case len(o.Data) > MaxData:
		return fmt.Errorf("object %s of %d octets: want %d at most", o.Kind, len(o.Data), MaxData)
	case len(o.Files) > MaxFiles:
		return fmt.Errorf("object %s with %d descriptors: want %d at most", o.Kind, len(o.Files), MaxFiles)
	}
	return nil
}

// ULP is an upper layer of a connection that can leave its process.
type ULP interface {
	stream.ULP

	// Export returns the state of the upper layer. No engine runs the connection, so that
	// no other method runs at the same time. Export changes nothing: if the upgrade
	// fails, the upper layer goes on here as if Export had not been called. If the upgrade
	// succeeds, Fault is called. An error makes the upgrade fail.
	//
	// The stream has its own copy of the octets that were emitted and not acknowledged,
	// and of those that were received and not consumed. Export must not repeat them.
	Export(now clock.Instant) (Object, error)
}
