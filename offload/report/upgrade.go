package report

// Upgrade says how far the upgrade of a process is. At the end Done is true.
type Upgrade struct {
	Done      bool     `json:"done"`
	Step      string   `json:"step"`       // what happens now; empty at the end
	Successor int      `json:"successor"`  // pid of the new process; 0: not known yet
	Flows     int      `json:"flows"`      // connections that were handed over, including those in TIME-WAIT
	Lost      []string `json:"lost"`       // connections that the new process could not continue, and why
	Warnings  []string `json:"warnings"`   // what else went wrong after the connections were handed over
	PrepareMS float64  `json:"prepare_ms"` // how long the new process prepared itself
	FrozenMS  float64  `json:"frozen_ms"`  // how long no process ran the connections
}
