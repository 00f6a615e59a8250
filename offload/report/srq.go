package report

import "fmt"

// SRQ is a shared receive queue.
type SRQ struct {
	Number uint32 `json:"srq"`
	PD     uint32 `json:"pd"`
	Depth  int    `json:"depth"`   // receives that the SRQ holds
	MaxSGE int    `json:"max_sge"` // elements of a receive
	Posted int    `json:"posted"`  // receives that are posted and that no QP has taken
	Taken  int    `json:"taken"`   // receives that QPs have taken and whose completions have not been polled
	Limit  int    `json:"limit"`   // the event SRQLimitReached comes when Posted is less; 0: no event is armed
	QPs    int    `json:"qps"`     // number of QPs that use the SRQ
}

// Columns returns the row of `stag show srqs`, in the words of `rdma resource show srq`.
func (s SRQ) Columns() []string {
	return []string{fmt.Sprint("srqn ", s.Number), fmt.Sprint("pdn ", s.PD), fmt.Sprint("rqe ", s.Depth), fmt.Sprint("posted ", s.Posted), fmt.Sprint("taken ", s.Taken),
		Word("limit ", s.Limit), fmt.Sprint("users ", s.QPs)}
}
