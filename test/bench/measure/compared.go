package measure

// Compared returns the report of measurements within the guest of the tests of
// interoperability: of sockets, UCX over TCP, siw, rxe and the kernel port. names are the
// rows, in this order. kernel is the release of the guest's kernel.
func Compared(names []string, samples map[string][]Values, kernel string) *Report {
	t := &Table{
		Name:  "guest",
		Title: "In a guest under emulation: sockets, UCX over TCP, siw, rxe and the kernel port",
		About: `Both ends are in the guest, on one processor, and octets go over its own interface.
Gb/s: messages of 64 KiB in one direction; verbs: Writes. asleep: us, half of the time
in which 64 octets go to the other end and come back, both ends sleep; verbs: Sends.
Times are those of many messages less those of few, by the guest's clock. Nothing is
emulated but the processor, and that makes all rows slower, not all by the same
factor: ratios say which way takes more instructions.`,
		Columns: []Column{{Gbps, "Gb/s", 3, true}, {SleepP50, "asleep", 1, true}},
		Base:    socketsName,
	}
	r := &Report{Tables: []*Table{t}}
	for _, name := range names {
		t.Rows = append(t.Rows, &Row{Case: Case{Name: name}, Samples: samples[name]})
		r.Rounds = len(samples[name])
	}
	if c, err := readConditions(); err == nil {
		r.Conditions = c
	}
	r.Conditions.Guest = kernel
	t.conclude()
	return r
}
