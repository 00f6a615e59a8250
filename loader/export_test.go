package loader

// ReadThreaded reads whether NAPI of a link runs in threads.
var ReadThreaded = readThreaded

// ReadSetting reads a setting of a link, as Tune does.
func ReadSetting(link, name string) (string, error) {
	e, err := openEthtool()
	if err != nil {
		return "", err
	}
	defer e.close()
	return knobs[name].get(e, link)
}

// SetLoadStep lets f run after each step of a load.
func SetLoadStep(f func(string)) { loadStep = f }

// SetMoveStep lets f run after each step of a move.
func SetMoveStep(f func(string)) { moveStep = f }

// Forwards6 reports whether an interface forwards IPv6.
func Forwards6(m *Mover, index int) bool { return m.net.forwards6(index) }
