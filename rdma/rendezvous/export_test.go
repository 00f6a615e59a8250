package rendezvous

// Early returns how many Requests wait for a Connect.
func (x *Exchange) Early() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.early)
}
