package engine

// account adds to the engine's totals what the flow's connection has counted
// since it was last accounted for. It is called when somebody looks and when
// the connection ends, so that the totals only grow, whoever comes and goes
// while a look at many connections is under way.
func (e *Engine) account(f *flow) {
	now := f.conn.Stats()
	e.totals.AddSince(&now, &f.told)
	f.told = now
}
