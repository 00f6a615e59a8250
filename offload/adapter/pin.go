package adapter

import "github.com/stag-rdma/stag/loader"

// tablePin is where the table is pinned, so that it can be read without the
// adapter: in the instance of the first port that `stag load` has loaded. "": in
// none, as no port is.
func (a *Adapter) tablePin() (string, error) {
	for _, name := range a.cfg.Ports {
		if dir, err := loader.InstanceOn(name); dir != "" || err != nil {
			return dir, err
		}
	}
	return "", nil
}
