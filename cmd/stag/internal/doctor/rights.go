package doctor

import (
	"fmt"
	"strings"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/doctor"
)

// commands are the commands that need capabilities. needs is the smallest set with which a command was seen to work.
// All other commands need no capability. With --kernel-port these commands need none either.
var commands = []struct {
	names string
	needs []string
}{
	{"ping and perf on an interface", []string{"CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"}},
	{"load and unload", []string{"CAP_NET_ADMIN", "CAP_BPF"}},
	{"NAPI by load --tune=throughput or latency", []string{"CAP_NET_ADMIN", "CAP_BPF", "CAP_SYS_ADMIN"}},
	{"demo between namespaces", []string{"CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_SYS_ADMIN"}},
}

// commandsRow returns a row with the commands for which the process has the rights.
func commandsRow() Row {
	const name = "commands"
	var may, lack []string
	missing := map[string]bool{}
	for _, c := range commands {
		without := loader.Lacking(c.needs...)
		if len(without) == 0 {
			may = append(may, c.names)
			continue
		}
		lack = append(lack, fmt.Sprintf("%s (%s)", c.names, strings.Join(without, ", ")))
		for _, w := range without {
			missing[w] = true
		}
	}
	row := Row{Topic: doctor.TopicRights, Name: name, Status: doctor.OK, Detail: "rights are there for " + strings.Join(may, ", ")}
	if len(lack) > 0 {
		row.Status, row.Fix = doctor.Hint, "run as root; ping, perf and demo with --kernel-port need no rights; run show, dump and metrics as the user of the engines"
		row.Detail = "rights are missing for " + strings.Join(lack, ", ")
		for _, need := range commands[len(commands)-1].needs { // the last command needs all capabilities of the others, too
			if missing[need] {
				row.Lacks = append(row.Lacks, need)
			}
		}
	}
	return row
}
