package rdma

import "testing"

// QP numbers have 24 bits and wrap around. A number that is in use is not given again: two
// QPs of a CQ would complete under one number.
func TestQPNumbersComeOnce(t *testing.T) {
	r := newLoopback(t)
	e := r.newEnd(r.a, wants{})
	make := func() *QP {
		t.Helper()
		qp, err := e.pd.CreateQP(QPConfig{SendCQ: e.send, RecvCQ: e.recv})
		r.Must(err)
		return qp
	}
	second := make()
	r.a.mu.Lock()
	r.a.numbers.last = maxQPNumber - 1 // as after 16 million QPs
	r.a.mu.Unlock()
	seen := map[uint32]bool{e.qp.Number(): true, second.Number(): true}
	for range 4 {
		qp := make()
		if n := qp.Number(); seen[n] || n < 2 || n >= 1<<24 {
			t.Errorf("QP %d", n)
		}
		seen[qp.Number()] = true
	}
	// A number is free again when its QP is closed, and when CreateQP has failed.
	free := second.Number()
	r.Must(second.Close())
	_, err := e.pd.CreateQP(QPConfig{SendCQ: e.send, RecvCQ: r.newEnd(r.b, wants{}).recv})
	r.Says(err, nil, "another adapter")
	r.a.mu.Lock()
	r.a.numbers.last = free - 1
	r.a.mu.Unlock()
	if n := make().Number(); n != free {
		t.Errorf("QP %d, want %d again", n, free)
	}
	if n := len(r.a.numbers.used); n != len(r.a.allQPs()) {
		t.Errorf("%d numbers in use by %d QPs", n, len(r.a.allQPs()))
	}
}
