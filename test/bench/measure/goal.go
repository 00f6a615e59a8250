package measure

// Goal is a ratio that stag is expected to reach, with the ratio that a run measured.
type Goal struct {
	What string  `json:"what"`
	Want float64 `json:"want"`
	Most bool    `json:"most,omitempty"` // true: Have must be at most Want; false: Have must be at least Want
	Have float64 `json:"have"`

	Hoped bool `json:"hoped,omitempty"` // the goal is only reported and has no verdict
}

// met reports whether the goal was reached or has no verdict.
func (g Goal) met() bool {
	if g.Hoped {
		return true
	}
	if g.Most {
		return g.Have <= g.Want
	}
	return g.Have >= g.Want
}

// goals returns the goals that can be computed from the rows of r.
func goals(r *Report) (list []Goal) {
	for _, f := range []func(*Report) []Goal{choiceGoals, goodputGoals, kernelPortGoals, connectionGoals, queueGoals, iperf3Goals, latencyGoals, rateGoals, burstGoals, memoryGoals, idleGoals, fairnessGoals, iscsiGoals, sessionGoals,
		portsGoals, blackoutGoals, moveGoals, drainGoals, evacuationGoals, silenceGoals, verbsGoals} {
		list = append(list, f(r)...)
	}
	return list
}

// least returns the lowest median of f among the rows for which wanted is true. ok is
// false if there is none.
func (t *Table) least(f Figure, wanted func(Case) bool) (v float64, ok bool) {
	for _, r := range t.Rows {
		if m, has := r.Median[f]; has && wanted(r.Case) && (!ok || m < v) {
			v, ok = m, true
		}
	}
	return v, ok
}

// best returns the highest median of f among the rows for which wanted is true. ok is
// false if there is none.
func (t *Table) best(f Figure, wanted func(Case) bool) (v float64, ok bool) {
	for _, r := range t.Rows {
		if m, has := r.Median[f]; has && wanted(r.Case) && (!ok || m > v) {
			v, ok = m, true
		}
	}
	return v, ok
}
