package measure

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// The frames of the table that counts packets carry as many octets as the messages,
// whatever the MTU is. The link reports the length of the frames.
func TestRawRateFrames(t *testing.T) {
	for _, s := range rateCases {
		if s.raw == notRaw {
			continue
		}
		t.Run(string(s.raw), func(t *testing.T) {
			need.Netns(t)
			s.mtu = 3506
			st, err := newStage(s)
			rig.Must(t, err)
			defer func() { rig.Must(t, st.close()) }()
			stream, err := startRate(t.Context(), st)
			rig.Must(t, err)
			const enough = 10000
			for end := time.Now().Add(20 * time.Second); stream.octets() < enough*small; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Errorf("only %d octets have come", stream.octets())
					break
				}
			}
			rig.Must(t, stream.stop())
			octets, frames := arrived(t, st)
			// The other octets are those of neighbour discovery.
			if n := float64(octets) / float64(frames); frames < enough || n < rawRoom+small-1 || n > rawRoom+small+1 {
				t.Errorf("%d frames with %d octets, %.1f each: want %d or more, of %d", frames, octets, n, enough, rawHeader+small)
			}
		})
	}
}

// arrived returns what the receiving end's link has counted, without Ethernet headers.
func arrived(t *testing.T, st *stage) (octets, frames uint64) {
	t.Helper()
	rig.Must(t, st.pair.Do(to, func() error {
		l, err := netlink.LinkByName(st.pair.Ends[to].Name)
		if err != nil {
			return err
		}
		octets, frames = l.Attrs().Statistics.RxBytes, l.Attrs().Statistics.RxPackets
		return nil
	}))
	return octets, frames
}
