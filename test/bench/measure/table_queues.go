package measure

import "fmt"

// Passed is the number of segments for each 10,000 that arrived at a queue whose engine
// does not have their connection.
const Passed Figure = "passed_per_10k"

// queueCounts are the numbers of queues of each end of the pair.
var queueCounts = []int{1, 2, 4}

// queuesName returns the name of the row with n queues.
func queuesName(n int) string {
	if n == 1 {
		return "write offloaded, 1 queue"
	}
	return fmt.Sprintf("write offloaded, %d queues", n)
}

func queuesTable(o Options) *Table {
	t := &Table{
		Name:  "queues",
		Title: "Queues: 8 connections, one direction, 64 KiB messages, each queue with an engine",
		About: `Each end of the pair has as many receive queues and transmit queues. The engines have
the processors of the machine together, so that more queues are not faster: CPU s/GB
shows what they cost. passed: segments for each 10,000 that arrived at a queue whose
engine does not have their connection.`,
		Columns: []Column{{Gbps, "Gb/s", 2, true}, {CPUPerGB, "CPU s/GB", 2, true}, {Busy, "busy", 2, false},
			{Resent, "resent", 1, false}, {Passed, "passed", 1, false}, {PerStep, "/step", 1, false}, {PerCall, "/call", 1, false}},
		Base: queuesName(1),
	}
	for _, mtu := range o.MTUs {
		for _, n := range queueCounts {
			for _, threaded := range []bool{false, true} {
				s := setting{stacks: [2]stack{offload, offload}, verb: write, mtu: mtu, threaded: threaded, queues: n, load: crowded(8)}
				r := s.row(o)
				r.Name = queuesName(n)
				t.Rows = append(t.Rows, r)
			}
		}
	}
	return t
}

// queueGoals demands that a packet costs no more with more queues.
func queueGoals(r *Report) (list []Goal) {
	t := r.table("queues")
	if t == nil {
		return nil
	}
	for _, mtu := range []int{1500, 3506, 9000} {
		cost := func(n int) float64 {
			least, _ := t.least(CPUPerGB, func(c Case) bool { return c.Name == queuesName(n) && c.MTU == mtu })
			return least
		}
		for _, n := range queueCounts[1:] {
			if one, many := cost(1), cost(n); one != 0 && many != 0 {
				list = append(list, Goal{What: fmt.Sprintf("processor time for each octet, 1 queue against %d, MTU %d", n, mtu), Want: 0.9, Have: one / many})
			}
		}
	}
	return list
}
