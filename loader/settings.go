package loader

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Change is a setting that was changed, or that was left unchanged for a reason.
type Change struct {
	Link    string `json:"interface"`      // name of the interface at the time of the change
	Setting string `json:"setting"`        // the name that ethtool -K or sysfs uses
	Was     string `json:"was"`            // old value
	Is      string `json:"is"`             // new value, or Was if nothing was changed
	Why     string `json:"why"`            // purpose of the change, or the reason why nothing was changed
	Run     string `json:"run,omitempty"`  // command that an operator must run elsewhere
	Index   int    `json:"index,omitzero"` // index of Link, in the network namespace of settings
}

// Changed reports whether the setting has a new value.
func (c Change) Changed() bool { return c.Was != c.Is }

func (c Change) String() string {
	switch {
	case c.Run != "":
		return fmt.Sprintf("%s of %s: %s: %s", c.Setting, c.Link, c.Why, c.Run)
	case !c.Changed():
		return fmt.Sprintf("%s of %s: left at %s  (%s)", c.Setting, c.Link, c.Was, c.Why)
	}
	return fmt.Sprintf("%s of %s: %s -> %s  (%s)", c.Setting, c.Link, c.Was, c.Is, c.Why)
}

// settings are the settings that a load has changed, with their old values. A file
// keeps them for the unload. A load writes the file before it changes a setting. The
// file may therefore list a change that did not happen, but it lists every change that
// happened.
type settings struct {
	Boot    string   `json:"boot"` // boot id of the kernel at the time of the changes
	Netns   uint64   `json:"netns"`
	Index   int      `json:"index"` // interface index of the port
	Port    string   `json:"port"`
	Changes []Change `json:"changes"`

	path string
}

const settingsPrefix = "settings-"

// settingsPath returns the path of the file. The file has the same name as the
// directory of the port's pins, after a prefix.
func settingsPath(l Link) string {
	return filepath.Join(RuntimeDir, fmt.Sprintf("%s%d-%d", settingsPrefix, l.Netns, l.PortIndex))
}

// settingsOf reads the settings that earlier loads have changed. It returns an empty
// list if there is no file.
func settingsOf(l Link) (*settings, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	kept, err := readSettings(settingsPath(l))
	if !errors.Is(err, os.ErrNotExist) {
		return kept, err
	}
	return &settings{Boot: boot, Netns: l.Netns, Index: l.PortIndex, Port: l.Port, path: settingsPath(l)}, nil
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("identify this run of the kernel: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// readSettings reads the file at path. The error is os.ErrNotExist if there is no file.
func readSettings(path string) (*settings, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &settings{path: path}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s does not say what settings were: set them by hand and remove it: %w", path, err)
	}
	return s, nil
}

// note records a change that is about to be made. It replaces the file as a whole, so
// the file is complete at any time.
func (s *settings) note(c Change) error {
	s.Changes = append(s.Changes, c)
	if err := s.write(); err != nil {
		return fmt.Errorf("keep what settings were in %s: %w", s.path, err)
	}
	return nil
}

func (s *settings) write() error { return writeWhole(s.path, s) }

// writeWhole writes v as JSON to a file of RuntimeDir. At any time, also after a crash,
// the file has its old content or its new one.
func writeWhole(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(RuntimeDir, 0o755); err != nil {
		return err
	}
	next := path + ".new"
	if err := writeSynced(next, append(text, '\n')); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	dir, err := os.Open(RuntimeDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// restore restores every setting that still has the value that the load gave it. It
// restores the last change first, and removes the file at the end. If moved is true,
// port is the port's present place, or the zero value if the place is unknown. done
// includes the settings that could not be restored, with the reason.
func (s *settings) restore(f *finder, port whereabouts, moved bool) (done []Change, err error) {
	if boot, err := bootID(); err != nil || boot == s.Boot {
		for i := len(s.Changes) - 1; i >= 0; i-- {
			c := s.Changes[i]
			at := whereabouts{index: c.Index, within: f.cookie(s.Netns)}
			if moved && c.Index == s.Index {
				at = port
			}
			if back, told := c.undo(at); told {
				done = append(done, back)
			}
		}
	}
	err = os.Remove(s.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	os.Remove(s.path + ".new") // left by a load that was killed while it wrote
	return done, err
}

// undo sets the setting to its old value. told is false if there is nothing to report:
// the setting was never changed, or has its old value already.
func (c Change) undo(at whereabouts) (back Change, told bool) {
	back = Change{Link: c.Link, Setting: c.Setting, Was: c.Is, Is: c.Is}
	if at.within == nil {
		back.Why = "not restored: its network namespace cannot be found or entered"
		return back, true
	}
	err := at.within.Do(func() error {
		var err error
		back, told, err = c.undoHere(at.index)
		return err
	})
	if err != nil {
		back.Is, back.Why = back.Was, "not restored: "+err.Error()
		return back, true
	}
	return back, told
}

// undoHere does what undo does, in the network namespace of the calling thread.
func (c Change) undoHere(index int) (back Change, told bool, err error) {
	back = Change{Link: c.Link, Setting: c.Setting, Was: c.Is, Is: c.Is}
	n, err := Open()
	if err != nil {
		return back, true, err
	}
	defer n.Close()
	if _, back.Link, err = n.programOn(index); err != nil {
		back.Link = c.Link
		return back, false, nil // the interface is gone, so nothing is left to restore
	}
	k, known := knobs[c.Setting]
	if !known {
		return back, true, fmt.Errorf("this stag knows no setting %q", c.Setting)
	}
	now, err := k.get(n.eth, back.Link)
	switch {
	case err != nil:
		return back, true, err
	case now == c.Was:
		return back, false, nil
	case now != c.Is:
		back.Was, back.Is, back.Why = now, now, "somebody has set it since; before stag it was "+c.Was
		return back, true, nil
	}
	back.Is, back.Why = c.Was, "as before stag"
	return back, true, k.turn(n.eth, back.Link, c.Was)
}
