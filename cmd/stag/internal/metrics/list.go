package metrics

// The exporter, and its scrapes.
var (
	buildInfo   = gauge("build_info", "The stag that exports this; always 1.", "version", "revision", "goversion")
	scrapeTime  = gauge("scrape_duration_seconds", "How long asking all engines and reading the pins took.")
	scrapeFails = counter("scrape_errors", "What could not be asked since the exporter began. gone: the engine ended meanwhile; timeout: it did not answer in time; "+
		"permission: it is another user's; schema: it is of another version of stag; pins: the pinned programs could not be read; other: see -v.", []string{"reason"})
)

// Engines.
var (
	engineUp    = gauge("engine_up", "1 when the engine answered, 0 when its process is there and it did not.", ofEngine...)
	engineInfo  = gauge("engine_info", "The network namespace, by its cookie, that the engine was opened in; always 1.", and(ofEngine, "netns")...)
	engineStart = gauge("engine_start_time_seconds", "When the adapter was opened, in seconds since 1970.", ofEngine...)
	heapSize    = gauge("heap_size_bytes", "The region heap, from which AllocMR gives out memory.", ofEngine...)
	heapFree    = gauge("heap_free_bytes", "What is free of the region heap.", ofEngine...)
	qps         = gauge("qps", "Queue pairs, by the state of the RDMAC verbs.", and(ofEngine, "state")...)
	cqs         = gauge("cqs", "Completion queues.", ofEngine...)
	cqsOverrun  = gauge("cqs_overrun", "Completion queues that had no room for a completion.", ofEngine...)
	mrs         = gauge("mrs", "Entries of the translation and protection table, by kind.", and(ofEngine, "kind")...)
	mrsMax      = gauge("mrs_max", "Entries that there is room for.", ofEngine...)
	mrBytes     = gauge("mrs_registered_bytes", "Memory that is registered; what lies in several regions counts several times.", ofEngine...)
	refusals    = counter("tpt_refusals", "Accesses and invalidations that the table refused, by fault.", and(ofEngine, "fault"))
	_           = counter("captured_packets", "Packets that were handed to captures.", ofEngine, "capture.packets")
	_           = counter("capture_lost_packets", "Packets that a capture asked for and that were lost because it did not take them in time.", ofEngine, "capture.lost")
	_           = counter("events_lost", "Asynchronous events that the application did not fetch in time.", ofEngine, "verbs.events_lost")
	other       = counter("other", "Counters of an engine that is newer than this exporter, under their own names.", and(ofDevice, "layer", "name"))
)

// Ports, with the names and labels of node_infiniband_*.
var (
	info          = gauge("device_info", "What the device is; always 1.", and(ofDevice, "driver", "xdp", "zero_copy", "mac", "loaded_as", "netns")...)
	stateID       = gauge("state_id", "State of the port, as of an InfiniBand port (1: down, 4: active).", ofPort...)
	physicalState = gauge("physical_state_id", "Physical state of the port, as of an InfiniBand port (3: disabled, 5: link up).", ofPort...)
	rate          = gauge("rate_bytes_per_second", "Speed of the link, where it is known.", ofPort...)
	mtu           = gauge("port_mtu_bytes", "MTU of the interface.", ofPort...)
	portFlows     = gauge("port_flows", "Connections of the device; the kernel port's are among them.", ofPort...)
	portFlowsMax  = gauge("port_flows_max", "Connections that the engine takes at a time.", ofPort...)

	_ = counter("port_data_received_bytes", "Octets that the engines received, Ethernet headers included.", ofPort, "engine.rx_octets")
	_ = counter("port_data_transmitted_bytes", "Octets that the engines sent, Ethernet headers included.", ofPort, "engine.tx_octets")
	_ = counter("port_packets_received", "Packets that the engines received.", ofPort, "engine.rx_packets")
	_ = counter("port_packets_transmitted", "Packets that the engines sent.", ofPort, "engine.tx_packets")
	_ = counter("port_discards_received", "Packets that were discarded because there was no room for them, in the AF_XDP socket or in the engine.", ofPort,
		"xsk_kernel.rx_dropped", "xsk_kernel.rx_ring_full", "engine.park_full", "engine.pass_full", "tcp.no_frames", "tcp.reorder_share")
	_ = counter("port_discards_transmitted", "Packets that the kernel took to send, and dropped.", ofPort, "xsk.lost")
	_ = counter("port_errors_received", "Packets with a wrong checksum or a header that cannot be.", ofPort, damaged...)
)

// The operations of all queue pairs of a device since its engine started, including
// closed ones. The kernel port has them too.
var (
	_ = counter("rdma_fpdus_received", "Segments of messages.", ofDevice, "rdmap.fpdus_in")
	_ = counter("rdma_fpdus_transmitted", "Segments of messages.", ofDevice, "rdmap.fpdus_out")
	_ = counter("rdma_writes_received", "RDMA Writes of peers.", ofDevice, "rdmap.writes_in")
	_ = counter("rdma_writes_transmitted", "RDMA Writes.", ofDevice, "rdmap.writes_out")
	_ = counter("rdma_write_received_bytes", "Payload of peers' RDMA Writes.", ofDevice, "rdmap.write_octets_in")
	_ = counter("rdma_write_transmitted_bytes", "Payload of RDMA Writes.", ofDevice, "rdmap.write_octets_out")
	_ = counter("rdma_read_requests_received", "RDMA Reads that peers asked for.", ofDevice, "rdmap.read_requests_in")
	_ = counter("rdma_read_requests_transmitted", "RDMA Reads that were asked for.", ofDevice, "rdmap.read_requests_out")
	_ = counter("rdma_read_responses_received", "RDMA Reads that peers answered.", ofDevice, "rdmap.read_responses_in")
	_ = counter("rdma_read_responses_transmitted", "RDMA Reads of peers that were answered.", ofDevice, "rdmap.read_responses_out")
	_ = counter("rdma_read_received_bytes", "Payload that was read from peers.", ofDevice, "rdmap.read_octets_in")
	_ = counter("rdma_read_transmitted_bytes", "Payload that peers read.", ofDevice, "rdmap.read_octets_out")
	_ = counter("rdma_sends_received", "Messages of the Send family.", ofDevice, "rdmap.sends_in")
	_ = counter("rdma_sends_transmitted", "Messages of the Send family.", ofDevice, "rdmap.sends_out")
	_ = counter("rdma_send_received_bytes", "Payload of the Send family.", ofDevice, "rdmap.send_octets_in")
	_ = counter("rdma_send_transmitted_bytes", "Payload of the Send family.", ofDevice, "rdmap.send_octets_out")
	_ = counter("rdma_invalidates_received", "Sends with Invalidate, which are among the Sends as well.", ofDevice, "rdmap.invalidates_in")
	_ = counter("rdma_invalidates_transmitted", "Sends with Invalidate, which are among the Sends as well.", ofDevice, "rdmap.invalidates_out")
	_ = most("rdma_outstanding_reads_received_peak", "High-water mark since the engine began: the most RDMA Reads of a peer that were outstanding at a time.", "rdmap.most_reads_in")
	_ = most("rdma_outstanding_reads_transmitted_peak", "High-water mark since the engine began: the most RDMA Reads of a queue pair that were outstanding at a time.", "rdmap.most_reads_out")
)

// The XDP program of an interface, independent of the engine that uses it.
var (
	steered    = counter("steer_packets", "Packets of the interface, by what the steering program made of them; each counts once.", and(ofProgram, "reason"))
	flows      = gauge("flows", "Entries of the program's flow table, by state.", and(ofProgram, "state")...)
	flowsAway  = gauge("flows_diverted", "Connections whose packets the kernel would send another way now than through the device.", ofProgram...)
	flowsMax   = gauge("flows_max", "Entries that there is room for.", ofProgram...)
	pinnedInfo = gauge("pinned_info", "A program that was loaded to stay, by the name of its instance; always 1. Its state is used (by an engine), unused or stale (of no use any more).",
		and(ofProgram, "loaded_as", "program_id", "state")...)
)

// Packets that stag did not use.
var drops = counter("drops", "Packets, or parts of them, that the engines got and did not use, by layer and reason: docs/counters.md explains them. Those of layers wire and tcp are all in it.",
	and(ofDevice, "layer", "reason"), "engine.no_flow", "engine.park_full", "engine.pass_full", "engine.no_owner")

var _ = counter("stray_segments", "Segments of taken-over connections that reached the kernel past the steering program, and were thrown away.", ofDevice, "placeholder.strays")

// The engine of each queue.
var (
	queueFlows  = gauge("queue_flows", "Connections of the queue's engine.", ofQueue...)
	queueAsleep = gauge("queue_asleep", "1 when the engine waits in poll, 0 when it works or spins.", ofQueue...)

	_ = counter("engine_steps", "Steps that moved something.", ofQueue, "engine.steps")
	_ = counter("engine_parked_segments", "Segments that were held for a take-over.", ofQueue, "engine.parked")
	_ = counter("engine_passed_out_segments", "Segments that were passed to another queue's engine.", ofQueue, "engine.passed_out")
	_ = counter("engine_passed_in_segments", "Segments that came from another queue's engine.", ofQueue, "engine.passed_in")
	_ = counter("engine_partial_checksums", "TCP checksum fields that held the sum of the pseudo-header only.", ofQueue, "engine.partial_sums")
	_ = counter("engine_stale_records", "Steering records that did not fit their packet.", ofQueue, "engine.stale_records")
	_ = counter("engine_unrecorded_packets", "Packets whose flow was found by their tuple, without a steering record.", ofQueue, "engine.unrecorded")
	_ = counter("engine_tagged_segments", "Segments that begin with a tagged FPDU, by their steering record: the peer's FPDUs are aligned with its segments.", ofQueue, "engine.tagged")
	_ = counter("engine_copied_payloads", "Payloads that were copied because the kernel still read the frame.", ofQueue, "engine.tx_copies")
	_ = counter("engine_transmit_ring_full", "Times that a segment had to wait for the transmit ring.", ofQueue, "engine.tx_ring_full")
	_ = counter("engine_no_transmit_frame", "Times that a segment had to wait for a transmit frame.", ofQueue, "engine.no_tx_frame")
	_ = counter("engine_flush_errors", "Times that the link took nothing.", ofQueue, "engine.flush_errors")
)

// TCP, of all connections since the engine started, including ended ones.
var (
	_ = counter("tcp_segments_received", "Segments.", ofDevice, "tcp.segs_in")
	_ = counter("tcp_segments_transmitted", "Segments, retransmissions included.", ofDevice, "tcp.segs_out")
	_ = counter("tcp_received_bytes", "Octets of data, in order.", ofDevice, "tcp.octets_in")
	_ = counter("tcp_transmitted_bytes", "Octets of data, retransmissions included.", ofDevice, "tcp.octets_out")
	_ = counter("tcp_acknowledged_bytes", "Octets of data that peers acknowledged.", ofDevice, "tcp.octets_acked")
	_ = counter("tcp_pure_acks_transmitted", "Segments with nothing but an acknowledgement.", ofDevice, "tcp.acks_out")
	_ = counter("tcp_retransmitted_segments", "Segments that were sent again.", ofDevice, "tcp.retransmits")
	_ = counter("tcp_timeouts", "Retransmission timeouts.", ofDevice, "tcp.timeouts")
	_ = counter("tcp_recoveries", "Fast recoveries.", ofDevice, "tcp.recoveries")
	_ = counter("tcp_duplicate_acks_received", "Acknowledgements of what was acknowledged already, the latest.", ofDevice, "tcp.dup_acks_in")
	_ = counter("tcp_old_acks_received", "Acknowledgements of less than the latest.", ofDevice, "tcp.old_acks")
	_ = counter("tcp_duplicate_sack_blocks_received", "Selective acknowledgements of what was acknowledged already.", ofDevice, "tcp.dup_sacks")
	_ = counter("tcp_reneged_sacks", "Times that a peer threw away what it had acknowledged selectively.", ofDevice, "tcp.reneged")
	_ = counter("tcp_tail_probes_transmitted", "Segments sent to find out about the last ones (RACK-TLP).", ofDevice, "tcp.tail_probes")
	_ = counter("tcp_tail_losses_repaired", "Losses that such a probe has repaired.", ofDevice, "tcp.tail_losses")
	_ = counter("tcp_reordered_segments_transmitted", "Segments that reached the peer after later ones.", ofDevice, "tcp.reordered")
	_ = counter("tcp_lost_retransmissions", "Retransmissions given up for lost.", ofDevice, "tcp.lost_retransmits")
	_ = counter("tcp_spurious_timeouts", "Retransmission timeouts that were taken back, because nothing had been lost.", ofDevice, "tcp.spurious_timeouts")
	_ = counter("tcp_spurious_recoveries", "Fast recoveries that were taken back, because nothing had been lost.", ofDevice, "tcp.spurious_recoveries")
	_ = counter("tcp_out_of_order_segments_received", "Segments behind a gap.", ofDevice, "tcp.out_of_order")
	_ = counter("tcp_challenge_acks", "Challenge acknowledgements that were called for.", ofDevice, "tcp.challenges")
	_ = counter("tcp_probes_transmitted", "Probes of keepalive and of closed windows.", ofDevice, "tcp.probes_out")
	_ = counter("tcp_resets_received", "RST segments that were believed.", ofDevice, "tcp.resets_in")
	_ = counter("tcp_resets_transmitted", "RST segments.", ofDevice, "tcp.resets_out")
	_ = counter("tcp_packet_too_big", "Reports of ICMP that a packet was too big, which were believed.", ofDevice, "tcp.too_bigs")
	_ = counter("tcp_black_holes_suspected", "Times that smaller segments were tried because full ones got no answer.", ofDevice, "tcp.black_holes")
	_ = counter("tcp_path_mtu_raises", "Times that a path turned out to be wider again.", ofDevice, "tcp.path_raises")
	_ = counter("tcp_congestion_marked_segments_received", "Segments with data that a router had marked (ECN CE).", ofDevice, "tcp.ce_in")
	_ = counter("tcp_congestion_echoes_received", "Acknowledgements that report such a mark (ECN ECE).", ofDevice, "tcp.ece_in")
	_ = counter("tcp_congestion_window_cuts_by_marks", "Reductions of a congestion window because of them.", ofDevice, "tcp.ecn_cuts")
)

// The AF_XDP socket of each queue. The kernel counts the last six (XDP_STATISTICS).
var (
	_ = counter("xsk_received_frames", "Frames received.", ofQueue, "xsk.rx")
	_ = counter("xsk_received_bad_descriptors", "Descriptors from the kernel that name no packet in a chunk that it had.", ofQueue, "xsk.rx_bad")
	_ = counter("xsk_filled_chunks", "Chunks given to the kernel to be filled.", ofQueue, "xsk.filled")
	_ = counter("xsk_receive_wakeups", "System calls for the receive side.", ofQueue, "xsk.rx_kicks")
	_ = counter("xsk_transmitted_frames", "Frames that were handed to the transmit ring.", ofQueue, "xsk.tx")
	_ = counter("xsk_completed_frames", "Frames that the kernel gave back, sent or not.", ofQueue, "xsk.completed")
	_ = counter("xsk_lost_frames", "Frames that the kernel took and dropped before the wire.", ofQueue, "xsk.lost")
	_ = counter("xsk_transmit_wakeups", "System calls for the transmit side.", ofQueue, "xsk.kicks")
	_ = counter("xsk_transmit_stalls", "Those of them that moved nothing.", ofQueue, "xsk.stalled")
	_ = counter("xsk_missing_transmit_frames", "Transmit frames that were asked for and not there.", ofQueue, "xsk.no_frames")
	_ = counter("xsk_refused_transmit_frames", "Frames that the transmit ring had no room for.", ofQueue, "xsk.no_room")
	_ = counter("xsk_misused_frames", "Frames that were refused because they were not the engine's: a mistake in stag.", ofQueue, "xsk.misused")

	_ = counter("xsk_rx_dropped", "Packets that the kernel dropped: too large for a chunk, or no chunk to fill in copy mode.", ofQueue, "xsk_kernel.rx_dropped")
	_ = counter("xsk_rx_invalid_descs", "Entries of the fill ring that name no chunk.", ofQueue, "xsk_kernel.rx_invalid")
	_ = counter("xsk_tx_invalid_descs", "Descriptors of the transmit ring that the kernel would not take.", ofQueue, "xsk_kernel.tx_invalid")
	_ = counter("xsk_rx_ring_full", "Packets that the kernel dropped because the receive ring was full.", ofQueue, "xsk_kernel.rx_ring_full")
	_ = counter("xsk_rx_fill_ring_empty_descs", "Times that the kernel found the fill ring empty.", ofQueue, "xsk_kernel.fill_empty")
	_ = counter("xsk_tx_ring_empty_descs", "Times that the kernel found the transmit ring empty.", ofQueue, "xsk_kernel.tx_ring_empty")
)
