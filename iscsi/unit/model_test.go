package unit

// Actions of the model besides the service actions of PERSISTENT RESERVE OUT.
const (
	opRead = 100 + iota
	opWrite
	opReserve6
	opRelease6
)

// model is what SPC-4 §5.13 and SPC-2 say of reservations, written down once more: a
// key for each initiator, and who holds what.
type model struct {
	key    []uint64 // 0: not registered
	kind   int      // 0: not reserved
	holder int
	six    int // holder by RESERVE(6), or -1
}

func newModel(n int) *model { return &model{key: make([]uint64, n), six: -1} }

func (m *model) anyKey() bool {
	for _, k := range m.key {
		if k != 0 {
			return true
		}
	}
	return false
}

func (m *model) holds(i int) bool {
	return m.kind != 0 && (m.kind >= 7 && m.key[i] != 0 || m.kind < 7 && m.holder == i)
}

// step returns the status of an action.
func (m *model) step(i, action, kind int, key, next uint64) Status {
	if m.six >= 0 && m.six != i && action != opReserve6 && action != opRelease6 {
		return ReservationConflict
	}
	switch action {
	case opRead, opWrite:
		return m.access(i, action == opWrite)
	case opReserve6:
		if m.anyKey() || m.six >= 0 && m.six != i {
			return ReservationConflict
		}
		m.six = i
		return Good
	case opRelease6:
		if m.anyKey() {
			return ReservationConflict
		}
		if m.six == i {
			m.six = -1
		}
		return Good
	}
	if action == 6 || action == 0 && m.key[i] == 0 && key == 0 {
		m.register(i, next)
		return Good
	}
	if m.key[i] == 0 || m.key[i] != key {
		return ReservationConflict
	}
	switch action {
	case 0:
		m.register(i, next)
	case 1:
		if m.kind != 0 && (!m.holds(i) || m.kind != kind) {
			return ReservationConflict
		}
		m.kind, m.holder = kind, i
	case 2:
		if m.holds(i) {
			if m.kind != kind {
				return CheckCondition
			}
			m.kind = 0
		}
	case 3:
		clear(m.key)
		m.kind = 0
	case 4, 5:
		return m.preempt(i, kind, next)
	}
	return Good
}

func (m *model) access(i int, write bool) Status {
	switch {
	case m.kind == 0, m.holds(i):
	case m.kind >= 5 && m.key[i] != 0:
	case !write && (m.kind == 1 || m.kind == 5 || m.kind == 7):
	default:
		return ReservationConflict
	}
	return Good
}

func (m *model) register(i int, next uint64) {
	held := m.holds(i)
	m.key[i] = next
	if next == 0 && held && (m.kind < 7 || !m.anyKey()) {
		m.kind = 0
	}
}

func (m *model) preempt(i, kind int, next uint64) Status {
	takes := false
	switch {
	case m.kind >= 7:
		takes = next == 0
	case m.kind != 0:
		takes = next == m.key[m.holder]
	}
	if !takes && next == 0 {
		return CheckCondition
	}
	found := takes
	for k := range m.key {
		if m.key[k] != 0 && (m.key[k] == next || takes && next == 0) {
			found = true
			if k != i {
				m.key[k] = 0
			}
		}
	}
	if !found {
		return ReservationConflict
	}
	if takes {
		m.kind, m.holder = kind, i
	}
	return Good
}
