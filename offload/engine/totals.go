package engine

// account adds to the engine's totals what the flow's connection has counted since the last call. It is called when
// the totals are read and when the connection ends, so that the totals only grow, even if connections come and go
// while the totals of many are read.
func (e *Engine) account(f *flow) {
	now := f.conn.Stats()
	e.totals.AddSince(&now, &f.told)
	f.told = now
}
