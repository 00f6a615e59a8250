package session

import (
	"errors"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// TestAdopt: commands that the mover had sent by itself are judged as those of Submit, and
// go back to the mover in their old order, writes behind the reset.
func TestAdopt(t *testing.T) {
	x := newScript(t).up(1)
	mine := []*Command{command(1, 7, read), command(2, 7, write), command(3, 8, read), command(4, 7, odd)}
	x.s.mover = &adopter{log: &x.log, s: x.s, commands: mine}
	x.s.Broken(x.now, errors.New("gone"))
	x.want("drop", "4 uncertain", "held")
	if x.s.Clean() || x.s.Len() != 3 {
		t.Fatalf("clean %v, %d commands", x.s.Clean(), x.s.Len())
	}
	x.at(2 * time.Second)
	x.connected(0) // the mover knows the window
	x.want("login", "connect", "up", "function 5 lun 7 sn 1", "send 3 sn 1")
	if x.s.Clean() || x.s.Live(mine[2]) || !x.s.Live(mine[1]) {
		t.Fatal("the machine has the wrong commands")
	}
	x.s.Managed(x.now, pdu.FunctionComplete)
	x.want("send 1 sn 1", "send 2 sn 1")
	if !x.s.Clean() || x.s.Len() != 0 {
		t.Fatalf("clean %v, %d commands", x.s.Clean(), x.s.Len())
	}
}

// adopter hands its commands over when the connection is dropped.
type adopter struct {
	*log
	s        *Session
	commands []*Command
}

func (a *adopter) Drop() {
	a.log.Drop()
	for _, c := range a.commands {
		a.s.Adopt(c, 0)
	}
	a.commands = nil
}
