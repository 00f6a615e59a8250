package measure

// Goal is a ratio that stag wants to reach, and what a run found.
type Goal struct {
	What string  `json:"what"`
	Want float64 `json:"want"`
	Most bool    `json:"most,omitempty"` // at most Want; otherwise at least
	Have float64 `json:"have"`

	Hoped bool `json:"hoped,omitempty"` // reported only: there is no verdict
}

// met reports whether the goal was reached, or is none.
func (g Goal) met() bool {
	if g.Hoped {
		return true
	}
	if g.Most {
		return g.Have <= g.Want
	}
	return g.Have >= g.Want
}

// goals are those that the tables of r have the rows for.
func goals(r *Report) (list []Goal) {
	for _, f := range []func(*Report) []Goal{goodputGoals, connectionGoals, iperf3Goals, latencyGoals, rateGoals, burstGoals, memoryGoals, idleGoals, fairnessGoals} {
		list = append(list, f(r)...)
	}
	return list
}

// best is the highest median of f among the rows that are wanted, and whether
// there is any.
func (t *Table) best(f Figure, wanted func(Case) bool) (v float64, ok bool) {
	for _, r := range t.Rows {
		if m, has := r.Median[f]; has && wanted(r.Case) && (!ok || m > v) {
			v, ok = m, true
		}
	}
	return v, ok
}
