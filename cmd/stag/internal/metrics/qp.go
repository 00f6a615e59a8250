package metrics

import (
	"strconv"

	"github.com/stag-rdma/stag/offload/report"
)

// These families are about single queue pairs. They are exported only with --per-qp.
var (
	qpInfo = qpGauge("info", "Device and addresses of the queue pair's connection, as labels; empty while there is no connection; always 1.", "device", "local", "remote")

	_ = qpCounter("fpdus_received", "Segments of messages received, each in one FPDU.", "rdmap.fpdus_in")
	_ = qpCounter("fpdus_transmitted", "Segments of messages sent, each in one FPDU.", "rdmap.fpdus_out")
	_ = qpCounter("writes_received", "RDMA Writes of the peer.", "rdmap.writes_in")
	_ = qpCounter("writes_transmitted", "RDMA Writes.", "rdmap.writes_out")
	_ = qpCounter("write_received_bytes", "Payload of the peer's RDMA Writes.", "rdmap.write_octets_in")
	_ = qpCounter("write_transmitted_bytes", "Payload of RDMA Writes.", "rdmap.write_octets_out")
	_ = qpCounter("read_requests_received", "RDMA Read Requests of the peer.", "rdmap.read_requests_in")
	_ = qpCounter("read_requests_transmitted", "RDMA Read Requests sent.", "rdmap.read_requests_out")
	_ = qpCounter("read_responses_received", "RDMA Reads that the peer answered.", "rdmap.read_responses_in")
	_ = qpCounter("read_responses_transmitted", "RDMA Reads of the peer that this end answered.", "rdmap.read_responses_out")
	_ = qpCounter("read_received_bytes", "Payload of RDMA Reads from the peer.", "rdmap.read_octets_in")
	_ = qpCounter("read_transmitted_bytes", "Payload that the peer fetched by RDMA Reads.", "rdmap.read_octets_out")
	_ = qpCounter("sends_received", "Sends of all types.", "rdmap.sends_in")
	_ = qpCounter("sends_transmitted", "Sends of all types.", "rdmap.sends_out")
	_ = qpCounter("send_received_bytes", "Payload of Sends.", "rdmap.send_octets_in")
	_ = qpCounter("send_transmitted_bytes", "Payload of Sends.", "rdmap.send_octets_out")
	_ = qpCounter("out_of_order_octets_received", "Payload octets that were placed while octets in front of them were missing.", "rdmap.out_of_order_octets_in")
	_ = qpCounter("invalidates_received", "Sends with Invalidate; they also count as Sends.", "rdmap.invalidates_in")
	_ = qpCounter("invalidates_transmitted", "Sends with Invalidate; they also count as Sends.", "rdmap.invalidates_out")
	_ = qpCounter("holds", "Messages of the peer that waited for a receive.", "rdmap.holds")
	_ = qpCounter("immediates_received", "Immediate Data messages of the peer (RFC 7306).", "rdmap.immediates_in")
	_ = qpCounter("immediates_transmitted", "Immediate Data messages sent (RFC 7306).", "rdmap.immediates_out")
	_ = qpCounter("atomics_received", "Atomic Requests of the peer (RFC 7306).", "rdmap.atomics_in")
	_ = qpCounter("atomics_transmitted", "Atomic Requests sent (RFC 7306).", "rdmap.atomics_out")
	_ = qpCounter("atomic_responses_received", "Atomic Requests that the peer answered.", "rdmap.atomics_done_in")
	_ = qpCounter("atomic_responses_transmitted", "Atomic Requests of the peer that this end answered.", "rdmap.atomics_done_out")

	qpReadsIn  = qpGauge("outstanding_reads_received_peak", "Largest number of RDMA Reads and Atomic Requests of the peer that were outstanding at a time.")
	qpReadsOut = qpGauge("outstanding_reads_transmitted_peak", "Largest number of RDMA Reads and Atomic Requests of this end that were outstanding at a time.")

	_ = qpCounter("tcp_retransmitted_segments", "Segments of the queue pair's connection that were sent again.", "tcp.retransmits")
	_ = qpCounter("tcp_timeouts", "Retransmission timeouts of the queue pair's connection.", "tcp.timeouts")
	_ = qpCounter("tcp_recoveries", "Fast recoveries of the queue pair's connection.", "tcp.recoveries")

	qpRTT     = qpGauge("tcp_rtt_seconds", "Smoothed round-trip time of the queue pair's connection.")
	qpRTO     = qpGauge("tcp_rto_seconds", "Retransmission timeout of the queue pair's connection, without backoff.")
	qpCwnd    = qpGauge("tcp_congestion_window_bytes", "Congestion window of the queue pair's connection.")
	qpUnacked = qpGauge("tcp_unacknowledged_bytes", "Octets that were sent and are not acknowledged yet.")
)

// ofQPs has the metric of a counter of a QP or of its connection, by layer.name.
var ofQPs = func() map[string]*Family {
	m := map[string]*Family{"rdmap.most_reads_in": qpReadsIn, "rdmap.most_reads_out": qpReadsOut}
	for _, f := range families {
		if f.QP {
			for _, from := range f.From {
				m[from] = f
			}
		}
	}
	return m
}()

// perQP adds the series of each queue pair.
func (s sheet) perQP(e report.Engine, of labels) {
	for _, qp := range e.QPs {
		at := of.and("qp", strconv.FormatUint(uint64(qp.Number), 10), "device", qp.Device)
		ends := at
		if qp.Local != nil && qp.Remote != nil {
			ends = at.and("local", qp.Local.String(), "remote", qp.Remote.String())
		}
		s.set(qpInfo, 1, ends)
		s.countQP(qp.Counters, at)
		for _, f := range e.Flows {
			if f.QP == qp.Number && f.Device == qp.Device && f.TCP != nil {
				s.connection(*f.TCP, at)
			}
		}
	}
}

func (s sheet) connection(c report.TCP, at labels) {
	const second = 1e6 // the unit of the report is microseconds
	s.set(qpRTT, float64(c.SRTT)/second, at)
	s.set(qpRTO, float64(c.RTO)/second, at)
	s.set(qpCwnd, float64(c.Cwnd), at)
	s.set(qpUnacked, float64(c.Unacked), at)
	s.countQP(c.Counters, at)
}

// countQP adds the counters of one QP.
func (s sheet) countQP(list []report.Counter, at labels) {
	for _, c := range list {
		if f := ofQPs[c.Layer+"."+c.Name]; f != nil {
			s.set(f, float64(c.Value), at)
		}
	}
}
