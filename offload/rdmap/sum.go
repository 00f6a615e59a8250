package rdmap

// Add adds the counters of another QP. For the largest number of Reads at a time, Add
// takes the larger of the two numbers.
func (s *Stats) Add(o *Stats) {
	for _, c := range []struct {
		sum *uint64
		n   uint64
	}{
		{&s.FPDUsIn, o.FPDUsIn}, {&s.FPDUsOut, o.FPDUsOut},
		{&s.WritesIn, o.WritesIn}, {&s.WritesOut, o.WritesOut},
		{&s.WriteOctetsIn, o.WriteOctetsIn}, {&s.WriteOctetsOut, o.WriteOctetsOut},
		{&s.ReadRequestsIn, o.ReadRequestsIn}, {&s.ReadRequestsOut, o.ReadRequestsOut},
		{&s.ReadResponsesIn, o.ReadResponsesIn}, {&s.ReadResponsesOut, o.ReadResponsesOut},
		{&s.ReadOctetsIn, o.ReadOctetsIn}, {&s.ReadOctetsOut, o.ReadOctetsOut},
		{&s.SendsIn, o.SendsIn}, {&s.SendsOut, o.SendsOut},
		{&s.SendOctetsIn, o.SendOctetsIn}, {&s.SendOctetsOut, o.SendOctetsOut},
		{&s.OutOfOrderOctetsIn, o.OutOfOrderOctetsIn},
		{&s.InvalidatesIn, o.InvalidatesIn}, {&s.InvalidatesOut, o.InvalidatesOut},
		{&s.ImmediatesIn, o.ImmediatesIn}, {&s.ImmediatesOut, o.ImmediatesOut},
		{&s.AtomicsIn, o.AtomicsIn}, {&s.AtomicsOut, o.AtomicsOut},
		{&s.Holds, o.Holds},
		{&s.AtomicsDoneIn, o.AtomicsDoneIn}, {&s.AtomicsDoneOut, o.AtomicsDoneOut},
	} {
		*c.sum += c.n
	}
	s.MostReadsIn = max(s.MostReadsIn, o.MostReadsIn)
	s.MostReadsOut = max(s.MostReadsOut, o.MostReadsOut)
}
