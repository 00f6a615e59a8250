package iscsi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/test/rig"
)

// serveTwice starts a target with a second portal, of group 2.
func serveTwice(t *testing.T, change func(c *iscsi.ServerConfig)) *iscsi.Server {
	t.Helper()
	return serveOn(t, ram(t, 1<<20), func(c *iscsi.ServerConfig) {
		c.Portals = []iscsi.PortalConfig{{Address: "127.0.0.1:0", Group: 2}}
		if change != nil {
			change(c)
		}
	})
}

// ask executes a command at LUN 1 of a portal, and returns the data and the sense.
func ask(t *testing.T, s *iscsi.Session, cdb []byte, length int) ([]byte, scsi.Sense) {
	t.Helper()
	in := make([]byte, length)
	r, err := s.Do(context.Background(), iscsi.Command{LUN: 1, CDB: cdb, In: in})
	var status *iscsi.StatusError
	if !errors.As(err, &status) {
		rig.Must(t, err)
		return in[:r.Length], scsi.Sense{}
	}
	sense, err := scsi.ParseSense(status.Sense)
	rig.Must(t, err)
	return nil, sense
}

// TestServePortals: both portals of a server are found, and lead to the same unit through
// different target port groups. One ISID can have a session through each.
func TestServePortals(t *testing.T) {
	s := serveTwice(t, nil)
	targets, err := iscsi.Discover(context.Background(), "iscsi://"+s.Addrs()[1].String(), iscsi.Config{})
	rig.Must(t, err)
	var want []string
	for _, a := range s.Addrs() {
		want = append(want, a.String())
	}
	if len(targets) != 1 || !slices.Equal(targets[0].Portals, want) || s.Addr() != s.Addrs()[0] {
		t.Errorf("found %+v, want portals %v", targets, want)
	}
	var units, ports []string
	for _, a := range s.Addrs() {
		d, err := iscsi.Dial(context.Background(), fmt.Sprintf("iscsi://%v/%s/1", a, ownTarget), iscsi.Config{})
		rig.Must(t, err)
		defer func() { rig.Check(t, d.Close()) }()
		cdb := scsi.VPDInquiry(scsi.PageIdentification, 255)
		b, _ := ask(t, d.Session(), cdb[:6], 255)
		all, err := scsi.ParseIdentification(b)
		rig.Must(t, err)
		name, _ := scsi.UnitName(all)
		units = append(units, name.String())
		for _, x := range all {
			if x.Association == scsi.OfPort && x.Type == scsi.DesignatorPortGroup {
				ports = append(ports, x.String())
			}
		}
	}
	if units[0] != units[1] || !slices.Equal(ports, []string{"00000001", "00000002"}) {
		t.Errorf("units %v, target port groups %v", units, ports)
	}
}

// TestServeAccess: access states are set at the start and change, and initiators learn it.
func TestServeAccess(t *testing.T) {
	s := serveTwice(t, func(c *iscsi.ServerConfig) {
		c.Access = map[uint16]iscsi.AccessState{2: iscsi.AccessStandby}
	})
	var by [2]*iscsi.Session
	for i, a := range s.Addrs() {
		var err error
		by[i], err = iscsi.DialSession(context.Background(), fmt.Sprintf("iscsi://%v/%s/1", a, ownTarget), iscsi.Config{})
		rig.Must(t, err)
		defer func() { rig.Check(t, by[i].Close()) }()
	}
	read := scsi.Read(0, 1, 0)
	expect := func(step string, code ...scsi.Code) {
		t.Helper()
		for i, want := range code {
			if _, sense := ask(t, by[i], read[:10], 512); sense.Code != want {
				t.Errorf("%s, portal %d: %v, want %v", step, i, sense, want)
			}
		}
	}
	const changed = scsi.AsymmetricAccessChanged
	expect("at the start", 0, scsi.TargetPortStandby)
	rig.Must(t, s.SetAccess(2, iscsi.AccessOptimized))
	expect("a change", changed, changed)
	expect("after it", 0, 0)
	rig.Must(t, s.SetAccess(1, iscsi.AccessUnavailable))
	expect("the other group", changed, changed)
	expect("after it", scsi.TargetPortUnavailable, 0)
	cdb := scsi.ReportTargetPortGroups(255)
	b, _ := ask(t, by[0], cdb[:12], 255)
	groups, err := scsi.ParsePortGroups(b)
	rig.Must(t, err)
	if len(groups) != 2 || groups[0].State != scsi.Unavailable || groups[1].State != scsi.Optimized || !slices.Equal(groups[1].Ports, []uint16{2}) {
		t.Errorf("groups %+v", groups)
	}
	if err := s.SetAccess(3, iscsi.AccessStandby); err == nil || !strings.Contains(err.Error(), "no portal has this group") {
		t.Errorf("an unknown group: %v", err)
	}
	if err := s.SetAccess(1, 9); err == nil || !strings.Contains(err.Error(), "choose active/optimized") {
		t.Errorf("an unknown state: %v", err)
	}
	_, err = iscsi.Serve(context.Background(), iscsi.ServerConfig{Access: map[uint16]iscsi.AccessState{7: 0}, Targets: []iscsi.TargetConfig{{Name: ownTarget}}})
	if err == nil || !strings.Contains(err.Error(), "portal group 7") {
		t.Errorf("a state of a group that is not there: %v", err)
	}
}
