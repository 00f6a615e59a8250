package engine

// account adds the counters of the flow's connection since the last call to the
// engine's totals. The engine calls it when the totals are read and when the connection
// ends. The totals therefore only grow, even if connections come and go while the
// totals of many are read.
func (e *Engine) account(f *flow) {
	now := f.conn.Stats()
	e.totals.AddSince(&now, &f.told)
	f.told = now
}
