package loader_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// inherit opens what s hands over, on an interface of side A.
func inherit(p *pair.Pair, name string, h loader.Handed, files []*os.File) (s *loader.Steering, err error) {
	err = p.Do(pair.A, func() (err error) {
		s, err = loader.Inherit(name, h, files)
		return err
	})
	return s, err
}

// TestInherit hands a private and a pinned program over. The first user may close it before or
// after Leave: the program, its flows and its claim stay with the second. Without Leave and Sign
// the first keeps them.
func TestInherit(t *testing.T) {
	for _, pin := range []string{"", instance} {
		t.Run("pin="+pin, func(t *testing.T) {
			p := netns.Pair(t, pair.Config{})
			unloadAfter(t)
			name := p.Ends[pair.A].Name
			k := key(t, "192.0.2.2:40000", "192.0.2.1:4420")
			s := mustLoad(t, p, loader.Options{Pin: pin})
			if pin != "" {
				rig.Must(t, s.Close())
				var err error
				s, err = adopt(p)
				rig.Must(t, err)
			}
			rig.Must(t, s.Insert(k, bpf.Flow{ID: 1, Kind: bpf.KindRDMA, State: bpf.Live}))
			busy := func() {
				t.Helper()
				var err error
				want := loader.ErrAlreadyLoaded
				if pin == "" {
					_, err = load(p, loader.Options{})
				} else {
					_, err = adopt(p)
					want = loader.ErrQueueBusy
				}
				rig.Says(t, err, want, fmt.Sprintf("pid %d", os.Getpid()))
			}
			hand := func() (loader.Handed, []*os.File) {
				t.Helper()
				h, files, err := s.Hand()
				rig.Must(t, err)
				return h, files
			}
			h, files := hand()
			if given, err := inherit(p, name, h, files); err != nil { // given back without a word
				t.Fatal(err)
			} else {
				busy()
				rig.Must(t, given.Close())
			}
			busy()
			if f, err := s.Lookup(k); err != nil || f.ID != 1 {
				t.Errorf("the flow: %+v, %v", f, err)
			}
			h, files = hand()
			given, err := inherit(p, name, h, files)
			rig.Must(t, err)
			t.Cleanup(func() { given.Close() })
			rig.Must(t, given.Sign())
			s.Leave()
			rig.Must(t, s.Close())
			busy()
			if on, err := given.Attached(); !on || err != nil || given.ProgID() != s.ProgID() || given.Mode() != s.Mode() || given.Instance() != pin {
				t.Errorf("attached %v, %v, program %d in mode %v, instance %q", on, err, given.ProgID(), given.Mode(), given.Instance())
			}
			if f, err := given.Lookup(k); err != nil || f.ID != 1 {
				t.Errorf("the flow: %+v, %v", f, err)
			}
			rig.Must(t, errors.Join(given.Delete(k), given.Close()))
			if pin == "" {
				again, err := load(p, loader.Options{})
				rig.Must(t, errors.Join(err, again.Close()))
			} else {
				rig.Must(t, unload())
			}
		})
	}
}

// TestInheritRefuses hands over what does not belong together.
func TestInheritRefuses(t *testing.T) {
	p, other := netns.Pair(t, pair.Config{}), netns.Pair(t, pair.Config{})
	name := p.Ends[pair.A].Name
	s := mustLoad(t, p, loader.Options{})
	for what, change := range map[string]func(*loader.Handed, []*os.File) []*os.File{
		"maps": func(h *loader.Handed, files []*os.File) []*os.File { h.Maps = h.Maps[1:]; return files },
		"descriptors": func(_ *loader.Handed, files []*os.File) []*os.File {
			files[0].Close()
			return files[1:]
		},
		"order": func(_ *loader.Handed, files []*os.File) []*os.File {
			files[0], files[1] = files[1], files[0]
			return files
		},
		"layout": func(h *loader.Handed, files []*os.File) []*os.File {
			files[1], files[2] = files[2], files[1]
			return files
		},
		"claim": func(h *loader.Handed, files []*os.File) []*os.File { h.Claim = "/etc/hostname"; return files },
	} {
		h, files, err := s.Hand()
		rig.Must(t, err)
		if given, err := inherit(p, name, h, change(&h, files)); err == nil {
			t.Errorf("other %s: accepted", what)
			given.Close()
		}
	}
	h, files, err := s.Hand()
	rig.Must(t, err)
	if given, err := inherit(other, other.Ends[pair.A].Name, h, files); err == nil {
		t.Error("accepted on another interface")
		given.Close()
	}
	if on, err := s.Attached(); !on || err != nil {
		t.Errorf("attached %v, %v", on, err)
	}
}

// TestInheritTable hands a table over, private and pinned.
func TestInheritTable(t *testing.T) {
	need.Root(t)
	t.Cleanup(func() { os.RemoveAll(instance) })
	for _, pin := range []string{"", instance} {
		table := mustTable(t, 128, pin)
		table.Memory()[64] = 7
		h, files, err := table.Hand()
		rig.Must(t, err)
		given, err := loader.InheritTable(h, files)
		rig.Must(t, err)
		rig.Must(t, given.Sign())
		table.Leave()
		rig.Must(t, table.Close())
		if given.Entries() != 128 || given.Memory()[64] != 7 || len(given.PageMemory()) == 0 {
			t.Errorf("%d entries, octet 64 is %d", given.Entries(), given.Memory()[64])
		}
		if pin != "" {
			_, err := loader.NewTable(128, 512, pin)
			rig.Says(t, err, loader.ErrTableBusy, fmt.Sprintf("pid %d", os.Getpid()))
		}
		h, files, err = given.Hand()
		rig.Must(t, err)
		files[0], files[1] = files[1], files[0]
		_, err = loader.InheritTable(h, files)
		rig.Says(t, err, loader.ErrLayout, "no table")
		rig.Must(t, given.Close())
	}
}
