package storage

import (
	"context"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/test/rig"
)

// during serves a target while a function runs.
func during(t *testing.T, o TargetOptions, do func(s *iscsi.Session)) {
	t.Helper()
	ctx, stop := context.WithCancel(rig.Context(t))
	defer stop()
	rig.Must(t, Serve(ctx, o, func(served Served) error {
		defer stop()
		s, err := iscsi.DialSession(ctx, Scheme+served.Portal+"/"+served.Name+"/1", iscsi.Config{InitiatorName: "iqn.2026-01.test.stag:one"})
		if err != nil {
			return err
		}
		do(s)
		return s.Close()
	}))
}

// TestSeveralPortals: a target listens at several portals, of TCP and of iSER, and says at
// which. A disk has a path through each.
func TestSeveralPortals(t *testing.T) {
	o := TargetOptions{Name: "iqn.2026-01.test.stag:several", BlockSize: 512, Sessions: 4,
		Portals: []string{"127.0.0.1:0", "127.0.0.2:0"}, ISER: []string{"127.0.0.3:0", "127.0.0.4:0"},
		Media: []Medium{{LUN: 1, Kind: kindRAM, Size: 1 << 20}}}
	ctx, stop := context.WithCancel(rig.Context(t))
	defer stop()
	rig.Must(t, Serve(ctx, o, func(s Served) error {
		defer stop()
		if len(s.MorePortals) != 2 || !strings.HasPrefix(s.MorePortals[0], "127.0.0.2:") || !strings.HasPrefix(s.MorePortals[1], "iser://127.0.0.4:") {
			t.Errorf("%+v", s)
			return nil
		}
		var text strings.Builder
		rig.Must(t, s.Print(&text))
		if want := "at " + s.Portal + " and iser://" + s.ISER + " and " + s.MorePortals[0] + " and " + s.MorePortals[1] + " over"; !strings.Contains(text.String(), want) {
			t.Errorf("%q, want %q", text.String(), want)
		}
		disk := "/" + s.Name + "/1"
		d, err := iscsi.DialMultipath(ctx, []string{Scheme + s.Portal + disk, Scheme + s.MorePortals[0] + disk, schemeISER + s.ISER + disk, s.MorePortals[1] + disk}, iscsi.Config{})
		rig.Must(t, err)
		for _, p := range d.Paths() {
			if p.State != iscsi.PathActive {
				t.Errorf("%+v", p)
			}
		}
		_, err = d.WriteAt(make([]byte, 64<<10), 0)
		rig.Check(t, err)
		return d.Close()
	}))
}

// keys returns the registered keys of LUN 1.
func keys(t *testing.T, s *iscsi.Session) (all []uint64) {
	t.Helper()
	cdb := scsi.PersistentReserveIn(scsi.ReadKeys, 256)
	b := make([]byte, 256)
	r, err := s.Do(rig.Context(t), iscsi.Command{LUN: 1, CDB: cdb[:10], In: b})
	rig.Must(t, err)
	for b = b[8:r.Length]; len(b) >= 8; b = b[8:] {
		all = append(all, binary.BigEndian.Uint64(b))
	}
	return all
}

// TestKeptReservations: a registration with APTPL is there again after a restart of the
// target, and without --reservations such a registration is refused.
func TestKeptReservations(t *testing.T) {
	o := TargetOptions{Name: "iqn.2026-01.test.stag:kept", Portals: []string{"127.0.0.1:0"}, BlockSize: 512, Sessions: 2,
		Media: []Medium{{LUN: 1, Kind: kindRAM, Size: 1 << 20}}}
	list := scsi.PersistOut{NewKey: key, KeepsPR: true}
	cdb := scsi.PersistentReserveOut(scsi.RegisterAndIgnore, 0)
	during(t, o, func(s *iscsi.Session) {
		if _, err := s.Do(rig.Context(t), iscsi.Command{LUN: 1, CDB: cdb[:10], Out: list.Append(nil)}); !refused(err) {
			t.Errorf("APTPL without a directory: %v", err)
		}
	})
	o.Reservations = t.TempDir()
	during(t, o, func(s *iscsi.Session) { persist(t, s, scsi.RegisterAndIgnore, list) })
	during(t, o, func(s *iscsi.Session) {
		if got := keys(t, s); len(got) != 1 || got[0] != key {
			t.Errorf("keys %x after a restart", got)
		}
	})
	files, err := os.ReadDir(o.Reservations)
	if err != nil || len(files) != 1 || files[0].Name() != "iqn.2026-01.test.stag:kept-lun1.json" {
		t.Errorf("files %v, %v", files, err)
	}
	o.Reservations += "/none"
	if err := Serve(rig.Context(t), o, nil); err == nil || !strings.Contains(err.Error(), "there is no such directory") {
		t.Errorf("a directory that is not there: %v", err)
	}
}
