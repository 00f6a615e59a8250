package metrics

// These families are about the exporter and its scrapes.
var (
	buildInfo   = gauge("build_info", "Version of the stag that exports these metrics; always 1.", "version", "revision", "goversion")
	scrapeTime  = gauge("scrape_duration_seconds", "Time that the scrape took to ask all engines and to read the pinned programs.")
	scrapeFails = counter("scrape_errors", "Engines and pinned programs that could not be read since the exporter started, by reason. gone: the engine ended meanwhile; timeout: the engine did not answer in time; "+
		"permission: the engine belongs to another user; schema: the engine has another version of stag; pins: the pinned programs could not be read; other: see the log of -v.", []string{"reason"})
)

// These families are about engines.
var (
	engineUp    = gauge("engine_up", "1 if the engine answered, 0 if its process exists and it did not answer.", ofEngine...)
	engineInfo  = gauge("engine_info", "Cookie of the network namespace in which the engine was opened; always 1.", and(ofEngine, "netns")...)
	engineStart = gauge("engine_start_time_seconds", "Time at which the adapter was opened, in seconds since 1970.", ofEngine...)
	heapSize    = gauge("heap_size_bytes", "Size of the region heap, from which AllocMR takes memory.", ofEngine...)
	heapFree    = gauge("heap_free_bytes", "Free octets of the region heap.", ofEngine...)
	qps         = gauge("qps", "Queue pairs, by the state of the RDMAC verbs.", and(ofEngine, "state")...)
	cqs         = gauge("cqs", "Completion queues.", ofEngine...)
	cqsOverrun  = gauge("cqs_overrun", "Completion queues that had no room for a completion.", ofEngine...)
	mrs         = gauge("mrs", "Entries of the translation and protection table, by kind.", and(ofEngine, "kind")...)
	mrsMax      = gauge("mrs_max", "Limit for the entries of the translation and protection table.", ofEngine...)
	mrBytes     = gauge("mrs_registered_bytes", "Registered octets; an octet in several regions counts several times.", ofEngine...)
	refusals    = counter("tpt_refusals", "Accesses and invalidations that the table refused, by fault.", and(ofEngine, "fault"))
	_           = counter("captured_packets", "Packets that were handed to captures.", ofEngine, "capture.packets")
	_           = counter("capture_lost_packets", "Packets that a capture selected and did not take in time.", ofEngine, "capture.lost")
	_           = counter("events_lost", "Asynchronous events that the application did not read in time.", ofEngine, "verbs.events_lost")
	other       = counter("other", "Counters of an engine that is newer than this exporter, by layer and name.", and(ofDevice, "layer", "name"))
)

// These families are about ports. They have the names and labels of node_infiniband_*.
var (
	info          = gauge("device_info", "Facts about the device, as labels; always 1.", and(ofDevice, "driver", "xdp", "zero_copy", "mac", "loaded_as", "netns")...)
	stateID       = gauge("state_id", "State of the port, with the numbers of InfiniBand (1: down, 4: active).", ofPort...)
	physicalState = gauge("physical_state_id", "Physical state of the port, with the numbers of InfiniBand (3: disabled, 5: link up).", ofPort...)
	rate          = gauge("rate_bytes_per_second", "Speed of the link, if it is known.", ofPort...)
	mtu           = gauge("port_mtu_bytes", "MTU of the interface.", ofPort...)
	portFlows     = gauge("port_flows", "Connections of the device, also those of the kernel port.", ofPort...)
	portFlowsMax  = gauge("port_flows_max", "Limit for the connections of the engine at a time.", ofPort...)

	_ = counter("port_data_received_bytes", "Octets that the engines received, Ethernet headers included.", ofPort, "engine.rx_octets")
	_ = counter("port_data_transmitted_bytes", "Octets that the engines sent, Ethernet headers included.", ofPort, "engine.tx_octets")
	_ = counter("port_packets_received", "Packets that the engines received.", ofPort, "engine.rx_packets")
	_ = counter("port_packets_transmitted", "Packets that the engines sent.", ofPort, "engine.tx_packets")
	_ = counter("port_discards_received", "Packets that were discarded because the AF_XDP socket or the engine had no room for them.", ofPort,
		"xsk_kernel.rx_dropped", "xsk_kernel.rx_ring_full", "engine.park_full", "engine.pass_full", "tcp.no_frames", "tcp.reorder_share")
	_ = counter("port_discards_transmitted", "Packets that the kernel took for transmission and dropped.", ofPort, "xsk.lost")
	_ = counter("port_errors_received", "Packets with a wrong checksum or an invalid header.", ofPort, damaged...)
)

// These families count the operations of all queue pairs of a device since its engine
// started. They include queue pairs that are closed. The kernel port has these families
// too.
var (
	_ = counter("rdma_fpdus_received", "Segments of messages received, each in one FPDU.", ofDevice, "rdmap.fpdus_in")
	_ = counter("rdma_fpdus_transmitted", "Segments of messages sent, each in one FPDU.", ofDevice, "rdmap.fpdus_out")
	_ = counter("rdma_writes_received", "RDMA Writes of peers.", ofDevice, "rdmap.writes_in")
	_ = counter("rdma_writes_transmitted", "RDMA Writes.", ofDevice, "rdmap.writes_out")
	_ = counter("rdma_write_received_bytes", "Payload of peers' RDMA Writes.", ofDevice, "rdmap.write_octets_in")
	_ = counter("rdma_write_transmitted_bytes", "Payload of RDMA Writes.", ofDevice, "rdmap.write_octets_out")
	_ = counter("rdma_read_requests_received", "RDMA Read Requests of peers.", ofDevice, "rdmap.read_requests_in")
	_ = counter("rdma_read_requests_transmitted", "RDMA Read Requests sent.", ofDevice, "rdmap.read_requests_out")
	_ = counter("rdma_read_responses_received", "RDMA Reads that peers answered.", ofDevice, "rdmap.read_responses_in")
	_ = counter("rdma_read_responses_transmitted", "RDMA Reads of peers that this end answered.", ofDevice, "rdmap.read_responses_out")
	_ = counter("rdma_read_received_bytes", "Payload of RDMA Reads from peers.", ofDevice, "rdmap.read_octets_in")
	_ = counter("rdma_read_transmitted_bytes", "Payload that peers fetched by RDMA Reads.", ofDevice, "rdmap.read_octets_out")
	_ = counter("rdma_sends_received", "Sends of all types.", ofDevice, "rdmap.sends_in")
	_ = counter("rdma_sends_transmitted", "Sends of all types.", ofDevice, "rdmap.sends_out")
	_ = counter("rdma_send_received_bytes", "Payload of Sends.", ofDevice, "rdmap.send_octets_in")
	_ = counter("rdma_send_transmitted_bytes", "Payload of Sends.", ofDevice, "rdmap.send_octets_out")
	_ = counter("rdma_out_of_order_octets_received", "Payload octets that were placed while octets in front of them were missing.", ofDevice, "rdmap.out_of_order_octets_in")
	_ = counter("rdma_invalidates_received", "Sends with Invalidate; they also count as Sends.", ofDevice, "rdmap.invalidates_in")
	_ = counter("rdma_invalidates_transmitted", "Sends with Invalidate; they also count as Sends.", ofDevice, "rdmap.invalidates_out")
	_ = counter("rdma_holds", "Messages of peers that waited for a receive.", ofDevice, "rdmap.holds")
	_ = counter("rdma_immediates_received", "Immediate Data messages of peers (RFC 7306).", ofDevice, "rdmap.immediates_in")
	_ = counter("rdma_immediates_transmitted", "Immediate Data messages sent (RFC 7306).", ofDevice, "rdmap.immediates_out")
	_ = counter("rdma_atomics_received", "Atomic Requests of peers (RFC 7306).", ofDevice, "rdmap.atomics_in")
	_ = counter("rdma_atomics_transmitted", "Atomic Requests sent (RFC 7306).", ofDevice, "rdmap.atomics_out")
	_ = counter("rdma_atomic_responses_received", "Atomic Requests that peers answered.", ofDevice, "rdmap.atomics_done_in")
	_ = counter("rdma_atomic_responses_transmitted", "Atomic Requests of peers that this end answered.", ofDevice, "rdmap.atomics_done_out")
	_ = most("rdma_outstanding_reads_received_peak", "Largest number of RDMA Reads and Atomic Requests of a peer that were outstanding at a time, since the engine started.", "rdmap.most_reads_in")
	_ = most("rdma_outstanding_reads_transmitted_peak", "Largest number of RDMA Reads and Atomic Requests of a queue pair that were outstanding at a time, since the engine started.", "rdmap.most_reads_out")
)

// These families are about the XDP program of an interface. They do not depend on the
// engine that uses the program.
var (
	steered    = counter("steer_packets", "Packets of the interface, by the decision of the steering program; each packet counts once.", and(ofProgram, "reason"))
	flows      = gauge("flows", "Entries of the program's flow table, by state.", and(ofProgram, "state")...)
	flowsAway  = gauge("flows_diverted", "Connections whose packets the kernel would now send through another device.", ofProgram...)
	flowsMax   = gauge("flows_max", "Limit for the entries of the program's flow table.", ofProgram...)
	pinnedInfo = gauge("pinned_info", "A program that was loaded to stay, by the name of its instance; always 1. Its state is used (an engine uses it), unused, or stale (no engine can use it any more).",
		and(ofProgram, "loaded_as", "program_id", "state")...)
)

// drops counts packets that stag did not use.
var drops = counter("drops", "Packets, or parts of them, that the engines received and did not use, by layer and reason (see docs/counters.md). All drops of the layers wire and tcp are included.",
	and(ofDevice, "layer", "reason"), "engine.no_flow", "engine.park_full", "engine.pass_full", "engine.no_owner")

var _ = counter("stray_segments", "Segments of taken-over connections that bypassed the steering program, reached the kernel, and were dropped there.", ofDevice, "placeholder.strays")

// These families are about moves of connections between the ports of an adapter. Only an
// adapter with several ports has them, except the first.
var (
	portDrained = gauge("port_drained", "1 if the port is drained, so that no connection comes to it; else 0.", ofDevice...)
	flowsMoved  = counter("flows_moved", "Connections that moved from the device to another port of the adapter, by cause.", and(ofDevice, "cause"))
	flowsFrozen = histogram("flow_move_frozen_seconds", "Times for which no engine ran a connection that moved from the device to another port.", ofDevice)

	_ = counter("flows_moved_in", "Connections that came to the device from another port of the adapter.", ofDevice, "move.in")
	_ = counter("flow_moves_failed", "Attempts to move a connection from the device to another port that failed; the connection stayed.", ofDevice, "move.failed")
	_ = counter("port_drains", "Times that the port was drained.", ofDevice, "move.drains")
)

// These families are about the engine of each queue.
var (
	queueFlows  = gauge("queue_flows", "Connections of the queue's engine.", ofQueue...)
	queueAsleep = gauge("queue_asleep", "1 if the engine sleeps in poll(2), 0 if it works or spins.", ofQueue...)

	_ = counter("engine_steps", "Steps of the engine that did some work.", ofQueue, "engine.steps")
	_ = counter("engine_parked_segments", "Segments that were held for a take-over.", ofQueue, "engine.parked")
	_ = counter("engine_passed_out_segments", "Segments that were passed to another queue's engine.", ofQueue, "engine.passed_out")
	_ = counter("engine_passed_in_segments", "Segments that came from another queue's engine.", ofQueue, "engine.passed_in")
	_ = counter("engine_foreign_segments", "Segments of the engine's connections that arrived at another port of the adapter.", ofQueue, "engine.foreign_rx")
	_ = counter("engine_foreign_copied_segments", "Those of them whose data was copied out of the other port's frame; the others were used in place.", ofQueue, "engine.foreign_copied")
	_ = counter("engine_partial_checksums", "TCP checksum fields that held only the sum of the pseudo-header.", ofQueue, "engine.partial_sums")
	_ = counter("engine_stale_records", "Steering records that did not match their packet.", ofQueue, "engine.stale_records")
	_ = counter("engine_unrecorded_packets", "Packets whose flow was found by the tuple, without a steering record.", ofQueue, "engine.unrecorded")
	_ = counter("engine_tagged_segments", "Segments that begin with a tagged FPDU, according to their steering record: the peer aligns FPDUs with segments.", ofQueue, "engine.tagged")
	_ = counter("engine_checksums_left", "Segments whose TCP checksum was left to the driver or the kernel.", ofQueue, "engine.tx_sums_left")
	_ = counter("engine_copied_payloads", "Payloads that were copied because the kernel still read the frame.", ofQueue, "engine.tx_copies")
	_ = counter("engine_transmit_ring_full", "Times that a segment had to wait for the transmit ring.", ofQueue, "engine.tx_ring_full")
	_ = counter("engine_no_transmit_frame", "Times that a segment had to wait for a transmit frame.", ofQueue, "engine.no_tx_frame")
	_ = counter("engine_flush_errors", "Times that the link accepted no frame.", ofQueue, "engine.flush_errors")
)

// These families sum over all TCP connections since the engine started, including ended
// ones.
var (
	_ = counter("tcp_segments_received", "Segments received.", ofDevice, "tcp.segs_in")
	_ = counter("tcp_segments_transmitted", "Segments sent, with retransmissions.", ofDevice, "tcp.segs_out")
	_ = counter("tcp_received_bytes", "Octets of data received in order.", ofDevice, "tcp.octets_in")
	_ = counter("tcp_transmitted_bytes", "Octets of data sent, with retransmissions.", ofDevice, "tcp.octets_out")
	_ = counter("tcp_acknowledged_bytes", "Octets of data that peers acknowledged.", ofDevice, "tcp.octets_acked")
	_ = counter("tcp_pure_acks_transmitted", "Segments that carry only an acknowledgement.", ofDevice, "tcp.acks_out")
	_ = counter("tcp_retransmitted_segments", "Segments that were sent again.", ofDevice, "tcp.retransmits")
	_ = counter("tcp_timeouts", "Retransmission timeouts.", ofDevice, "tcp.timeouts")
	_ = counter("tcp_recoveries", "Fast recoveries.", ofDevice, "tcp.recoveries")
	_ = counter("tcp_duplicate_acks_received", "Acknowledgements that repeat the highest acknowledgement.", ofDevice, "tcp.dup_acks_in")
	_ = counter("tcp_old_acks_received", "Acknowledgements below the highest acknowledgement.", ofDevice, "tcp.old_acks")
	_ = counter("tcp_duplicate_sack_blocks_received", "SACK blocks that report octets received twice (D-SACK, RFC 2883).", ofDevice, "tcp.dup_sacks")
	_ = counter("tcp_reneged_sacks", "Times that a peer discarded octets that it had SACKed.", ofDevice, "tcp.reneged")
	_ = counter("tcp_tail_probes_transmitted", "Tail-loss probes sent (RFC 8985).", ofDevice, "tcp.tail_probes")
	_ = counter("tcp_tail_losses_repaired", "Losses that a tail-loss probe has repaired.", ofDevice, "tcp.tail_losses")
	_ = counter("tcp_reordered_segments_transmitted", "Segments that reached the peer after segments that were sent later.", ofDevice, "tcp.reordered")
	_ = counter("tcp_lost_retransmissions", "Retransmissions that were lost themselves.", ofDevice, "tcp.lost_retransmits")
	_ = counter("tcp_spurious_timeouts", "Retransmission timeouts that were undone, because nothing was lost.", ofDevice, "tcp.spurious_timeouts")
	_ = counter("tcp_spurious_recoveries", "Fast recoveries that were undone, because nothing was lost.", ofDevice, "tcp.spurious_recoveries")
	_ = counter("tcp_out_of_order_segments_received", "Segments received out of order.", ofDevice, "tcp.out_of_order")
	_ = counter("tcp_challenge_acks", "Challenge ACKs that the limit allowed (RFC 5961).", ofDevice, "tcp.challenges")
	_ = counter("tcp_probes_transmitted", "Keepalive probes and zero-window probes sent.", ofDevice, "tcp.probes_out")
	_ = counter("tcp_resets_received", "RST segments that were accepted.", ofDevice, "tcp.resets_in")
	_ = counter("tcp_resets_transmitted", "RST segments sent.", ofDevice, "tcp.resets_out")
	_ = counter("tcp_packet_too_big", "ICMP messages that a packet was too big, which were accepted.", ofDevice, "tcp.too_bigs")
	_ = counter("tcp_black_holes_suspected", "Times that smaller segments were tried, because full-sized segments were not acknowledged.", ofDevice, "tcp.black_holes")
	_ = counter("tcp_path_mtu_raises", "Times that a larger segment size was adopted, because a trial segment arrived.", ofDevice, "tcp.path_raises")
	_ = counter("tcp_congestion_marked_segments_received", "Segments with data that a router had marked (ECN CE).", ofDevice, "tcp.ce_in")
	_ = counter("tcp_congestion_echoes_received", "Acknowledgements that report an ECN mark (ECE).", ofDevice, "tcp.ece_in")
	_ = counter("tcp_congestion_window_cuts_by_marks", "Reductions of a congestion window because of ECN marks.", ofDevice, "tcp.ecn_cuts")
)

// These families are about iSCSI sessions. Those with a device sum over all sessions of a
// role since the engine started, including ended ones. An engine without iSCSI has no such
// series.
var (
	iscsiSessions = gauge("iscsi_sessions", "iSCSI sessions, by role and state.", and(ofEngine, "role", "state")...)
	iscsiCommands = gauge("iscsi_commands_in_progress", "Commands that have no status yet.", and(ofEngine, "role")...)
	iscsiReasons  = counter("iscsi_reasons", "PDUs that were refused, commands that failed and connections that ended, by reason (see docs/counters.md).", and(ofDevice, "role", "reason"))
	iscsiTook     = histogram("iscsi_command_duration_seconds", "Latencies of completed commands. That of a target begins when the command has arrived.", and(ofDevice, "role"))

	_ = counter("iscsi_commands", "Commands and other requests that an initiator has sent, or that a target has received.", and(ofDevice, "role"), both("commands")...)
	_ = counter("iscsi_failed_commands", "Commands that ended without status GOOD.", and(ofDevice, "role"), both("failed")...)
	_ = counter("iscsi_pdus_received", "PDUs received after the login.", and(ofDevice, "role"), both("pdus_in")...)
	_ = counter("iscsi_pdus_transmitted", "PDUs sent after the login.", and(ofDevice, "role"), both("pdus_out")...)
	_ = counter("iscsi_placed_bytes", "Data of peers that was placed in the memory of its command, by tag.", and(ofDevice, "role"), both("placed_octets")...)
	_ = counter("iscsi_transmitted_bytes", "Data that was sent to peers.", and(ofDevice, "role"), both("sent_octets")...)
	_ = counter("iscsi_refused_pdus", "PDUs of peers that were refused: nothing of them was placed.", and(ofDevice, "role"), both("refused")...)
	_ = counter("iscsi_digest_errors", "PDUs with a wrong data digest.", and(ofDevice, "role"), both("digest_errors")...)
	_ = counter("iscsi_repaired", "PDUs and sequences of data that came whole at a later try, or were sent again (error recovery level 1).", and(ofDevice, "role"), both("repaired")...)
	_ = counter("iscsi_recoveries", "Logins of initiators after the first of a session.", and(ofDevice, "role"), both("recoveries")...)
)

// These families are about the AF_XDP socket of each queue. The kernel counts the last
// six (XDP_STATISTICS).
var (
	_ = counter("xsk_received_frames", "Frames received.", ofQueue, "xsk.rx")
	_ = counter("xsk_received_bad_descriptors", "Descriptors from the kernel whose packet is not in a chunk that the kernel owned.", ofQueue, "xsk.rx_bad")
	_ = counter("xsk_filled_chunks", "Chunks given to the kernel to be filled.", ofQueue, "xsk.filled")
	_ = counter("xsk_receive_wakeups", "System calls for the receive side.", ofQueue, "xsk.rx_kicks")
	_ = counter("xsk_transmitted_frames", "Frames that were handed to the transmit ring.", ofQueue, "xsk.tx")
	_ = counter("xsk_completed_frames", "Frames that the kernel returned, sent or not.", ofQueue, "xsk.completed")
	_ = counter("xsk_lost_frames", "Frames that the kernel took and dropped before the wire.", ofQueue, "xsk.lost")
	_ = counter("xsk_transmit_wakeups", "System calls for the transmit side.", ofQueue, "xsk.kicks")
	_ = counter("xsk_transmit_stalls", "System calls for the transmit side that sent nothing.", ofQueue, "xsk.stalled")
	_ = counter("xsk_missing_transmit_frames", "Transmit frames that the engine requested and that were not available.", ofQueue, "xsk.no_frames")
	_ = counter("xsk_refused_transmit_frames", "Frames for which the transmit ring had no room.", ofQueue, "xsk.no_room")
	_ = counter("xsk_misused_frames", "Frames that were refused because the engine did not own them: a fault of stag.", ofQueue, "xsk.misused")

	_ = counter("xsk_rx_dropped", "Packets that the kernel dropped because they were too large for a chunk or, in copy mode, because there was no chunk to fill.", ofQueue, "xsk_kernel.rx_dropped")
	_ = counter("xsk_rx_invalid_descs", "Entries of the fill ring that name no chunk.", ofQueue, "xsk_kernel.rx_invalid")
	_ = counter("xsk_tx_invalid_descs", "Descriptors of the transmit ring that the kernel refused.", ofQueue, "xsk_kernel.tx_invalid")
	_ = counter("xsk_rx_ring_full", "Packets that the kernel dropped because the receive ring was full.", ofQueue, "xsk_kernel.rx_ring_full")
	_ = counter("xsk_rx_fill_ring_empty_descs", "Times that the kernel found the fill ring empty.", ofQueue, "xsk_kernel.fill_empty")
	_ = counter("xsk_tx_ring_empty_descs", "Times that the kernel found the transmit ring empty.", ofQueue, "xsk_kernel.tx_ring_empty")
)
