package engine

// account adds to the engine's totals what the connection of f has counted since the
// last call of account for f. The engine calls account when the totals are read and when the connection
// ends. The totals therefore only grow, even if connections come and go while the
// totals of many are read.
func (e *Engine) account(f *flow) {
	now := f.conn.Stats()
	e.totals.AddSince(&now, &f.told)
	f.told = now
}
