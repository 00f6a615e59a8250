package measure

import (
	"context"
	"fmt"
)

// small is the size of the messages of this table, in octets.
const small = 64

// Rate is in millions of messages per second.
const Rate Figure = "mega_per_s"

// rateCases are the compared settings, for each NAPI setting.
var rateCases = []setting{
	{raw: rawBare, octets: small},
	{raw: rawAsavie, octets: small},
	{stacks: [2]stack{offload, offload}, verb: write},
	{stacks: [2]stack{offload, offload}, verb: send},
	{stacks: [2]stack{kernel, kernel}, verb: write},
	{stacks: [2]stack{kernel, kernel}, verb: write, program: noXDP},
	{stacks: [2]stack{kernel, kernel}, load: load{message: small, connections: 1}, program: noXDP},
}

func rateTable(o Options) *Table {
	t := &Table{
		Name:  "rate",
		Title: "Rate: messages of 64 octets, one connection, one direction",
		About: fmt.Sprintf(`Millions a second. raw: frames with 64 octets of payload. kernel TCP: writes of
64 octets, which the kernel may join. Verbs post %d messages with
one call, of which the last has a completion, and wakes who receives Sends; %d are
outstanding: as many segments as raw frames are under way. packets: of the receiver,
for each message.`, rateBatch, rateBatch*rateBatches),
		Columns: []Column{{Rate, "M/s", 2, true}, {Busy, "busy", 2, false}, {PerMessage, "packets", 3, false}, {Resent, "resent", 1, false}, {PerCall, "/call", 1, false}},
		Base:    string(rawBare),
	}
	for _, threaded := range []bool{false, true} {
		for _, s := range rateCases {
			s.mtu, s.threaded = 1500, threaded
			t.Rows = append(t.Rows, s.rateRow(o))
		}
	}
	return t
}

// PerMessage is the number of received packets per message.
const PerMessage Figure = "packets_per_message"

func (s setting) rateRow(o Options) *Row {
	c := Case{Name: s.name(), MTU: s.mtu, NAPI: napiName(s.threaded), Message: small, Connections: 1}
	return &Row{Case: c, Checked: s.checked(), run: func(ctx context.Context) (Values, error) {
		found, err := runStream(ctx, s, o.Warm, o.Time, startRate)
		if err != nil {
			return nil, err
		}
		v := found.values(s)
		messages := float64(found.Octets) / small
		sent, got := found.Sides[from], found.Sides[to]
		all := Values{Rate: found.Gbps * 1e3 / 8 / small, Busy: found.Busy, Resent: v[Resent], PerCall: per(sent.TxPackets, sent.Kicks)}
		if got.RxPackets != 0 {
			all[PerMessage] = float64(got.RxPackets) / messages
		}
		return all, nil
	}}
}

// startRate starts a stream of small messages from side A to side B.
func startRate(ctx context.Context, st *stage) (traffic, error) {
	if st.raw != notRaw {
		return startRaw(st)
	}
	if st.verb == plainStream {
		return startTransfer(ctx, st)
	}
	return startSmall(ctx, st)
}

// rateGoals compares verbs with raw frames, each with its best NAPI setting.
func rateGoals(r *Report) (list []Goal) {
	t := r.table("rate")
	if t == nil {
		return nil
	}
	named := func(name string) func(Case) bool { return func(c Case) bool { return c.Name == name } }
	base, there := t.best(Rate, named(string(rawBare)))
	have, too := t.best(Rate, named("write offloaded"))
	if !there || !too || base == 0 {
		return nil
	}
	return []Goal{{What: fmt.Sprintf("write, %d octets, messages against packets of %s", small, rawBare), Want: 8, Have: have / base}}
}
