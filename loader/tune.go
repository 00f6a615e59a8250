package loader

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Tune says for which purpose Load changes settings.
type Tune string

const (
	// TuneNothing changes no setting.
	TuneNothing Tune = ""
	// TuneBasics turns off settings that keep stag from working, or from working well:
	// offloads that join packets, and the removal of VLAN tags by the NIC. It has no
	// disadvantage.
	TuneBasics Tune = "basics"
	// TuneLatency does the same as TuneBasics and moves NAPI out of kernel threads. A
	// small message then does not wait for a thread to wake up.
	TuneLatency Tune = "latency"
	// TuneThroughput does the same as TuneBasics and moves NAPI into kernel threads.
	// One processor then receives packets while the engine works on another. A message
	// that arrives alone waits for the thread to wake up.
	TuneThroughput Tune = "throughput"
)

// Tunes lists the values of Tune.
var Tunes = []Tune{TuneNothing, TuneBasics, TuneLatency, TuneThroughput}

// wanted is a setting with the value that suits stag best.
type wanted struct {
	link    string
	index   int
	setting string
	value   string
	why     string
}

// These are the values of wanted.why.
const (
	whyJoined   = "generic mode would get segments joined to up to 64 KiB, which fit no chunk"
	whyLRO      = "segments joined by the card do not reach native XDP"
	whyTags     = "the program must see VLAN tags"
	whySegments = "it sends segments of up to 64 KiB otherwise, which generic mode does not cut up"
	whyThreaded = "for throughput: packets are taken in by a thread of their own, beside the engine's"
	whyDirect   = "for latency: no thread has to be woken for a packet"
)

// tuning returns the settings that suit l, in the order in which Load must set them. Load
// must set the settings in before, then attach the program, then set the settings in
// after. The settings in after need NAPI, which a veth has only while a program is
// attached. peer is the other end of a veth, or nil if it cannot be seen.
func tuning(l Link, generic bool, t Tune, peer *netlink.LinkAttrs) (before, after []wanted) {
	port := func(setting, value, why string) wanted { return wanted{l.Port, l.PortIndex, setting, value, why} }
	if generic {
		before = append(before, port("gro", off, whyJoined), port("lro", off, whyJoined))
	} else {
		before = append(before, port("lro", off, whyLRO))
	}
	if l.VLAN != 0 && !l.Facts().KeepsTags {
		before = append(before, port("rxvlan", off, whyTags))
	}
	if peer != nil && generic {
		before = append(before, wanted{peer.Name, peer.Index, "tso", off, whySegments}, wanted{peer.Name, peer.Index, "gso", off, whySegments})
	}
	switch t {
	case TuneLatency:
		after = append(after, port("threaded", "0", whyDirect))
	case TuneThroughput:
		after = append(after, port("threaded", "1", whyThreaded))
	}
	return before, after
}

// tuner changes settings for one load.
type tuner struct {
	net   *Net
	kept  *settings
	after []wanted
	done  []Change
}

// newTuner changes the settings that must be changed before the program is attached.
func (n *Net) newTuner(l Link, generic bool, what Tune) (*tuner, error) {
	kept, err := settingsOf(l)
	if err != nil {
		return nil, err
	}
	t := &tuner{net: n, kept: kept}
	peer := n.vethPeer(l)
	before, after := tuning(l, generic, what, peer)
	t.after = after
	if err := t.apply(before); err != nil {
		t.undo()
		return nil, err
	}
	if l.Facts().Pair && peer == nil && generic {
		t.done = append(t.done, otherEnd()...)
	}
	return t, nil
}

// apply changes the settings that do not have the wanted value. It records the old
// value before each change. If a setting cannot be changed, apply reports that and goes
// on.
func (t *tuner) apply(list []wanted) error {
	for _, w := range list {
		k := knobs[w.setting]
		was, err := k.get(t.net.eth, w.link)
		if errors.Is(err, unix.EOPNOTSUPP) || err == nil && was == w.value {
			continue // a driver that does not report a setting does not have it
		}
		if err != nil {
			t.done = append(t.done, Change{Link: w.link, Setting: w.setting, Was: unknown, Is: unknown, Why: err.Error()})
			continue
		}
		c := Change{Link: w.link, Index: w.index, Setting: w.setting, Was: was, Is: w.value, Why: w.why}
		if err := t.kept.note(c); err != nil {
			return err
		}
		loadStep("noted " + w.setting)
		if err := k.turn(t.net.eth, w.link, w.value); err != nil {
			c.Is, c.Why = was, fmt.Sprintf("wanted %s, but %v", w.value, err)
		}
		t.done = append(t.done, c)
	}
	return nil
}

// unknown is the value of a setting that cannot be read.
const unknown = "unknown"

// undo restores all settings.
func (t *tuner) undo() error {
	f := newFinder()
	defer f.close()
	_, err := t.kept.restore(f, whereabouts{}, false)
	return err
}

// changes returns the changes for the report, without the index, which only the file
// needs.
func (t *tuner) changes() []Change {
	list := slices.Clone(t.done)
	for i := range list {
		list[i].Index = 0
	}
	return list
}

// loadStep is called after each step of a load. A test replaces it to kill the process
// after a certain step.
var loadStep = func(string) {}
