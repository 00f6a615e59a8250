package rdma

// Device returns the device below the verbs. Only the other upper layers of stag know its
// type: an iSCSI session on an adapter shares the adapter's ports, connections and table.
func (a *Adapter) Device() any { return a.device }
