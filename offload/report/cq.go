package report

import "fmt"

// CQ is a completion queue.
type CQ struct {
	Number  uint32 `json:"cq"`
	Depth   int    `json:"depth"` // completions that the CQ holds
	Ready   int    `json:"ready"` // completions that wait to be polled
	QPs     int    `json:"qps"`   // number of QPs that use the CQ
	Overrun bool   `json:"overrun"`
}

// Columns returns the row of `stag show cqs`, in the words of `rdma resource show cq`.
func (c CQ) Columns() []string {
	return []string{fmt.Sprint("cqn ", c.Number), fmt.Sprint("cqe ", c.Depth), fmt.Sprint("ready ", c.Ready), fmt.Sprint("users ", c.QPs), when(c.Overrun, "overrun")}
}
