package rdma

// Device returns the device below the verbs. Only the other upper layers of stag know its
// type: an iSCSI session on an adapter shares the adapter's ports, connections and table.
func (a *Adapter) Device() any { return a.device }

// Link returns the connection of a connected QP below the verbs. From the first call on,
// posts to the send queue ring no doorbell: behind them the caller calls Post of the
// connection that Link returns then. So one doorbell serves many posts. Only the other upper
// layers of stag know the type.
func (qp *QP) Link() any {
	qp.silent.Store(true)
	return qp.conn.Load()
}
