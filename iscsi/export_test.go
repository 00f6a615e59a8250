package iscsi

// MemoryTaken returns how many octets of the memory for data are in use.
func (s *Server) MemoryTaken() int { return s.pool.Size() - s.pool.Free() }
