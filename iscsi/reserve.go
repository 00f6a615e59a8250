package iscsi

import (
	"context"
	"errors"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// ReservationType is the type of a persistent reservation (SPC-4 §6.15.3.4).
type ReservationType = scsi.ReservationType

// The types of persistent reservations. Registrants are the initiators that have registered
// a key. The names that end in All are reservations that all registrants hold.
const (
	WriteExclusive            = scsi.WriteExclusive
	ExclusiveAccess           = scsi.ExclusiveAccess
	WriteExclusiveRegistrants = scsi.WriteExclusiveRegistrants
	ExclusiveRegistrants      = scsi.ExclusiveRegistrants
	WriteExclusiveAll         = scsi.WriteExclusiveAll
	ExclusiveAll              = scsi.ExclusiveAll
)

// ErrReservation is the error of a command that a reservation of another initiator forbids, or
// whose key is not the registered one: its status is RESERVATION CONFLICT.
var ErrReservation = errors.New("iscsi: RESERVATION CONFLICT")

// Is reports whether target is ErrReservation and the status is RESERVATION CONFLICT.
func (e *StatusError) Is(target error) bool {
	return target == ErrReservation && scsi.Status(e.Status) == scsi.ReservationConflict
}

// Reservations is what a unit tells of its persistent reservation.
type Reservations struct {
	Generation uint32   // changes with each registration
	Keys       []uint64 // of all registrations
	Held       bool     // there is a reservation: Key and Type are valid
	Key        uint64   // of its holder
	Type       ReservationType
}

// mostKeys is how many keys Reservations reads.
const mostKeys = 1000

// Reservations asks the unit for its persistent reservation, and for at most 1000 keys.
func (d *Disk) Reservations() (r Reservations, err error) {
	buf := make([]byte, 8+8*mostKeys)
	n, err := d.persistIn(scsi.ReadKeys, buf)
	if err != nil {
		return r, err
	}
	if r.Generation, r.Keys, err = scsi.ParseKeys(buf[:n]); err != nil {
		return r, err
	}
	if n, err = d.persistIn(scsi.ReadReservation, buf[:32]); err != nil {
		return r, err
	}
	held, err := scsi.ParseReservation(buf[:n])
	r.Held, r.Key, r.Type = held.Held, held.Key, held.Type
	return r, err
}

func (d *Disk) persistIn(a scsi.PersistInAction, buf []byte) (n int, err error) {
	cdb := scsi.PersistentReserveIn(a, uint16(len(buf)))
	r, err := d.command(context.Background(), length(&cdb), buf, nil)
	return r.Length, err
}

// Register registers a key for this initiator at the unit, in place of the one that it has. Key
// 0 ends the registration. durable says that registrations and the reservation outlive a loss
// of power of the target (APTPL). They outlive the loss of the connection in any case.
//
// A registration is for one path, so Register and the methods that need a registration refuse a
// disk of several paths. None of them is repeated if its connection is lost: ErrUncertain.
func (d *Disk) Register(key uint64, durable bool) error {
	return d.persistOut(scsi.RegisterAndIgnore, 0, scsi.PersistOut{NewKey: key, KeepsPR: durable})
}

// Reserve makes a reservation. key is the one that this initiator has registered. Errors also:
// ErrReservation.
func (d *Disk) Reserve(key uint64, t ReservationType) error {
	return d.persistOut(scsi.Reserve, t, scsi.PersistOut{Key: key})
}

// Release ends the reservation of this initiator, which has type t. Errors also:
// ErrReservation.
func (d *Disk) Release(key uint64, t ReservationType) error {
	return d.persistOut(scsi.Release, t, scsi.PersistOut{Key: key})
}

// Preempt ends the registrations with the key victim. If one of them holds the reservation, this
// initiator holds it from then on, with type t. abort says that the commands of those initiators
// end too. Errors also: ErrReservation.
func (d *Disk) Preempt(key, victim uint64, t ReservationType, abort bool) error {
	a := scsi.Preempt
	if abort {
		a = scsi.PreemptAndAbort
	}
	return d.persistOut(a, t, scsi.PersistOut{Key: key, NewKey: victim})
}

// ClearReservations ends the reservation and all registrations. Errors also: ErrReservation.
func (d *Disk) ClearReservations(key uint64) error {
	return d.persistOut(scsi.Clear, 0, scsi.PersistOut{Key: key})
}

func (d *Disk) persistOut(a scsi.PersistOutAction, t ReservationType, p scsi.PersistOut) error {
	if d.paths != nil {
		return errors.New("iscsi: a persistent reservation of a disk of several paths: a registration is for one path: Dial each path alone, and register there")
	}
	cdb := scsi.PersistentReserveOut(a, t)
	_, err := d.command(context.Background(), length(&cdb), nil, p.Append(nil))
	return err
}
