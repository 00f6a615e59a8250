package rdma

import "context"

// use lets the caller change objects of the adapter until it calls done. It waits while the
// adapter is being handed over. A goroutine must not call use twice before done.
func (a *Adapter) use() (done func(), err error) {
	if err := a.verbs.Enter(context.Background()); err != nil {
		return nil, err
	}
	free, err := a.device.Use()
	if err != nil {
		a.verbs.Leave()
		return nil, err
	}
	return func() { free(); a.verbs.Leave() }, nil
}

// still is use for a change that needs neither the table nor the heap. The change happens
// even if the adapter has been handed over, because nothing depends on it any more.
func (a *Adapter) still() (done func()) {
	if a.verbs.Enter(context.Background()) != nil {
		return func() {}
	}
	return a.verbs.Leave
}
