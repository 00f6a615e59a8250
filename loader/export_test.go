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
