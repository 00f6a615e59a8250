package report

import "fmt"

// Queue is one AF_XDP queue of a device with its engine.
type Queue struct {
	Device    string    `json:"device"`
	Queue     int       `json:"queue"`
	Mode      string    `json:"mode"` // mode of the socket: copy or zero-copy
	FrameSize uint32    `json:"frame_size"`
	RxFrames  uint32    `json:"rx_frames"`
	TxFrames  uint32    `json:"tx_frames"`
	Flows     int       `json:"flows"`
	Asleep    bool      `json:"asleep"`   // the engine waits in poll
	Counters  []Counter `json:"counters"` // counters of layers engine, wire, tcp, xsk, xsk_kernel
}

// Columns returns the row of `stag show queues`.
func (q Queue) Columns() []string {
	return []string{"dev " + q.Device, fmt.Sprint("queue ", q.Queue), "mode " + q.Mode, "state " + either(q.Asleep, "asleep", "busy"), fmt.Sprint("flows ", q.Flows),
		fmt.Sprint("frame_size ", q.FrameSize), fmt.Sprint("rx_frames ", q.RxFrames), fmt.Sprint("tx_frames ", q.TxFrames)}
}
