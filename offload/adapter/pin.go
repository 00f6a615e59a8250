package adapter

import "github.com/stag-rdma/stag/loader"

// tablePin returns the directory that the table is pinned in, so that tools can read
// it without the adapter: the instance of the first port that `stag load` has loaded.
// It is "" if no port is loaded.
func (a *Adapter) tablePin() (string, error) {
	for _, name := range a.cfg.Ports {
		if dir, err := loader.InstanceOn(name); dir != "" || err != nil {
			return dir, err
		}
	}
	return "", nil
}
