package rdma

import "testing"

// TestQPContext: a completion leads to the context of its QP, also if other QPs share the
// CQ, and also when the QP has been closed before its completions were polled.
func TestQPContext(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.newEnd(r.a, wants{qp: QPConfig{Context: "first"}}), r.newEnd(r.b, wants{})
		u, v := x.another(), y.another() // without a context
		u.qp = r.beside(x, []int{2})     // not comparable
		r.Must(r.join(x, y, wants{}))
		r.Must(r.join(u, v, wants{}))
		y.receive(RecvWR{})
		v.receive(RecvWR{})
		x.post(SendWR{ID: 1, Op: WRSend, Flags: Signaled})
		u.post(SendWR{ID: 2, Op: WRSend, Flags: Signaled})
		for _, c := range r.ok(x.sent(2)) {
			context := x.send.QPContext(c)
			if second, ok := context.([]int); context != any("first") && (!ok || second[0] != 2) || ok != (c.ID == 2) {
				t.Errorf("%+v has the context %v", c, context)
			}
		}
		for _, c := range r.ok(y.got(2)) {
			if context := y.recv.QPContext(c); context != nil {
				t.Errorf("%+v has the context %v", c, context)
			}
		}
	})
}

// beside makes a QP with a context and the other objects of e.
func (r *rig) beside(e *end, context any) *QP {
	r.Helper()
	qp, err := e.pd.CreateQP(QPConfig{SendCQ: e.send, RecvCQ: e.recv, Context: context})
	r.Must(err)
	return qp
}

// TestQPContextAfterClose: the CQ keeps the context of a closed QP until the Poll after
// the last completion of the QP, and no longer.
func TestQPContextAfterClose(t *testing.T) {
	r := newLoopback(t)
	e := r.newEnd(r.a, wants{})
	qp := r.beside(e, "closed")
	other := r.beside(e, "open")
	_, err := qp.PostRecv(RecvWR{ID: 1}, RecvWR{ID: 2})
	r.Must(err)
	r.Must(qp.Close())
	for id := range uint64(2) {
		c := r.poll(e.recv, 1)[0]
		if context := e.recv.QPContext(c); c.ID != id+1 || c.Status != Flushed || context != "closed" {
			t.Errorf("%+v has the context %v", c, context)
		}
	}
	last := Completion{QP: qp.Number()}
	if e.recv.QPContext(last) != "closed" {
		t.Error("the context is gone before the next Poll")
	}
	r.none(e.recv)
	if context := e.recv.QPContext(last); context != nil {
		t.Errorf("after the next Poll there is still %v", context)
	}
	r.none(e.send)
	if e.send.QPContext(last) != nil || e.recv.contexts.left != nil || e.send.contexts.left != nil {
		t.Error("a CQ keeps something of the closed QP")
	}
	if e.recv.QPContext(Completion{QP: other.Number()}) != "open" {
		t.Error("the open QP has lost its context")
	}
}

// TestSQSigAll: each request has a completion, whatever its flags are.
func TestSQSigAll(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{qp: QPConfig{SQSigAll: true}})
		y.receive(RecvWR{})
		x.post(SendWR{ID: 0, Op: WRWrite, SGL: []SGE{x.mr.SGE(0, 10)}, RKey: y.mr.RKey()},
			SendWR{ID: 1, Op: WRRead, SGL: []SGE{x.mr.SGE(0, 10)}, RKey: y.mr.RKey()},
			SendWR{ID: 2, Op: WRSend, Flags: Signaled},
			SendWR{ID: 3, Op: WRWrite, Flags: Fence, Inline: []byte("x"), RKey: y.mr.RKey()})
		for i, c := range r.ok(x.sent(4)) {
			if c.ID != uint64(i) {
				t.Errorf("completion %d is %+v", i, c)
			}
		}
		r.none(x.send)
	})
}
