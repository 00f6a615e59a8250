package demo

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/rig"
)

func newSAN(t *testing.T) *san {
	t.Helper()
	s := &san{stage: small.bare()}
	t.Cleanup(func() { rig.Must(t, s.close()) })
	rig.Must(t, s.open(t.Context(), small))
	return s
}

// TestWrongDiskFails: a write or a read of other octets than those of the pattern is an error.
func TestWrongDiskFails(t *testing.T) {
	s := newSAN(t)
	d, err := iscsi.Dial(t.Context(), s.url(s.server.Addr()), s.config())
	rig.Must(t, err)
	defer d.Close()
	const p octets.Pattern = 5
	disk := s.disk.Lend(0, 64<<10, true)
	p.Fill(disk, 0)
	m := &mover{san: s, window: small.window()}
	rig.Must(t, m.compare(p, 64<<10))
	disk[4711]++
	rig.Says(t, m.compare(p, 64<<10), nil, "octet 4711 of the disk")
	c := iscsi.Completion{Length: 64 << 10}
	m.buffers = [][]byte{disk}
	_, err = m.completed(&c, iscsi.Read, p, 0, 64<<10)
	rig.Says(t, err, nil, "octet 4711 is not")
	c.Length--
	_, err = m.completed(&c, iscsi.Write, p, 0, 64<<10)
	rig.Says(t, err, nil, "moved 65535 octets")
}

// TestLiesThatAreBelieved: the demonstration fails if a PDU is not refused, is refused for another reason, or if the
// command ends otherwise.
func TestLiesThatAreBelieved(t *testing.T) {
	s := newSAN(t)
	l, at, err := s.listenForLies(t.Context())
	rig.Must(t, err)
	defer l.Close()
	truth := func(l *liar, c *pdu.Header) error { return l.dataIn(c, c.InitiatorTaskTag(), 0, 0, honest, true) }
	for says, c := range map[string]lie{
		"counts no no_task":     {why: flow.NoTask, command: completed, toInitiator: truth},
		"counts no data_sn_gap": {why: flow.DataSNGap, command: completed, toInitiator: reading(elsewhere, 0, 0)},
		"should be failed":      {why: flow.NoTask, command: failed, toInitiator: reading(elsewhere, 0, 0)},
		"memory of side A": {why: flow.NoTask, command: completed, toInitiator: func(l *liar, c *pdu.Header) error {
			tag := c.InitiatorTaskTag()
			return joined(l.dataIn(c, elsewhere(tag), 0, 0, forged, false), l.dataIn(c, tag, 0, 0, forged, true))
		}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := c.told(ctx, s, func(ctx context.Context) (func() error, error) { return c.toSideA(ctx, s, l, at) })
		cancel()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

func joined(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
