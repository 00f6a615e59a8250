package iscsi_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/test/rig"
)

// TestQueueError: the error of an IO has the status and the sense data, and names no other
// command.
func TestQueueError(t *testing.T) {
	r := rig.On(t)
	d, err := iscsi.Dial(r.Ctx(), url(serveOn(t, ram(t, 1<<20), nil), "", ""), iscsi.Config{})
	r.Must(err)
	t.Cleanup(func() { r.Check(d.Close()) })
	q, err := d.Queue(1)
	r.Must(err)
	_, err = q.Post(iscsi.IO{ID: 5, Op: iscsi.Read, LBA: 1 << 20, Buffers: [][]byte{make([]byte, 512)}})
	r.Must(err)
	r.Must(q.Wait(r.Ctx()))
	var got [1]iscsi.Completion
	var status *iscsi.StatusError
	if q.Poll(got[:]) != 1 || got[0].ID != 5 || !errors.As(got[0].Err, &status) || status.Status != 2 {
		t.Fatalf("%+v", got[0])
	}
	if text := got[0].Err.Error(); strings.Contains(text, "TEST UNIT READY") || !strings.HasPrefix(text, "iscsi: CHECK CONDITION: ILLEGAL REQUEST") {
		t.Errorf("the error is %q", text)
	}
	r.Must(q.Close())
}
