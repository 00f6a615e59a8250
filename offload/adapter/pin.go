package adapter

import "github.com/stag-rdma/stag/loader"

// tablePin returns the directory to pin the table in, so that tools can read the table
// without the adapter. The directory belongs to the instance of the first port that
// `stag load` has loaded. tablePin returns "" if no port is loaded.
func (a *Adapter) tablePin() (string, error) {
	for _, name := range a.cfg.Ports {
		if dir, err := loader.InstanceOn(name); dir != "" || err != nil {
			return dir, err
		}
	}
	return "", nil
}
