package main

import "github.com/stag-rdma/stag/cmd/stag/internal/man"

// manual is what the manual page of a command says beyond --help.
func manual(text string) map[string]string { return map[string]string{man.More: text} }

const doctorManual = `Rows are grouped by topic. A row that is OK is only counted; -v prints it, and
--json has every row. A row is FAIL if a requirement is not met. It is unknown if
the command cannot look: the row says why, and what makes it known. Neither a hint
nor an unknown row changes the exit code. On a terminal the words OK, hint, FAIL and
unknown are coloured, unless NO_COLOR is set.`

const demoManual = `The kernels of the two namespaces open a TCP connection, which is taken over at
both ends. RDMA Writes, RDMA Reads and Sends then move octets through AF_XDP from
memory to memory. With -v the command also prints why zero copy is not used.`

const dumpManual = `Received packets are shown as they arrived. Sent packets are shown as they go on
the wire, with retransmissions and checksums. Packets over the kernel port are
the kernel's: use tcpdump for them.

With -w the file has the direction, queue, flow and QP of each packet as a
comment, and the queue and the direction as fields. Wireshark finds RDMA only
after the MPA Request and Reply. The kernels exchange these before a connection
is taken over. Therefore -w writes two packets that stand for them before the
first packet of each connection. Their comments say so, and -c does not count them.
--bare leaves them out, as does a connection with Markers. Wireshark takes short
Sends for RPC: use tshark --disable-protocol rpcordma.

The time of a packet is the time at which the engine took it from the interface,
or had it ready to be sent. A packet that arrived while the engine slept or did
other work has a later time than on the wire.

The command captures on the engines that run when it starts. It does not see
engines that start later. It reports on standard error when an engine ends, and
goes on with the others. Anyone who may capture sees the payload, so the file can
be read by its owner only.

No engine waits for a capture. Each queue keeps up to 8 MiB for a capture, and each
interface up to 64 MiB. Packets that do not fit are lost, because the command or
the reader of its output is slow. They are counted in the last line and in the
file. At most 8 captures can look at one engine at the same time. Packets of
several engines or interfaces are in the order in which they were handed over.

The kinds for --kind are:
  write, read-request, read-response, send, terminate
          the header of the FPDU with which the segment begins; further FPDUs
          in the segment are not examined
  ack     a segment without payload, also a FIN or RST
  data    payload that does not begin with an FPDU, as when FPDUs are cut
  icmp    a router's message that a packet was too big
  other   a packet that cannot be parsed

The command ends at Ctrl-C, after -c packets, when no engine is left, or when
nothing reads its output. It then prints how many packets it captured and lost.
It exits with 1 if an engine died, or if the output could not be written. The
packets that are in the file by then are complete.`

const loadManual = `If the process of an adapter is killed or crashes, its queues have no socket any
more, and nothing answers its peers. The program then drops their segments for
--orphan-wait, counted for each connection from its first segment on. After that
the program gives the connection up, and the kernel, which does not know the
connection, resets the peer. A peer that sends is reset at its first
retransmission after that time. A silent peer is reset when it sends, or by its
keepalive. If another process adopts the program before, the peers are reset at
once. An engine that is slow or stopped keeps its sockets and its connections.

Each interface is an instance, named after the interface. Interfaces with the same
--instance belong to one instance. One adapter can then use all of them, with a
table that can be read while it runs.

Plain --tune turns off the offloads that stag cannot work with. --tune=throughput
also moves NAPI into kernel threads. Another processor than the engine's then
receives packets. A single message waits for that thread, for more than 100 us on
a small machine. --tune=latency moves NAPI out of threads. The number of queues
and the MTU are not changed. The previous settings are kept in /run/stag.

If the interface is already loaded with the same settings, the command changes
nothing, exits with 0, and tunes if that is asked for.`

const metricsManual = `An engine that does not answer within 2 s is left out, and its stag_engine_up is 0.
The names are those of node_exporter's node_infiniband_ metrics if there is such a
name.

There is neither encryption nor a password. Listen at addresses other than the
loopback's only if everybody may read the metrics.`

const perfManual = `Three things differ from perftest. A process that waits polls for a completion for
about 40 us, does the work of the connection meanwhile, and then sleeps. Longer
polling would take the processor from others, perhaps from the other end.
-D can be used with -a and -e, and its rows of latencies have all columns. -e can
be used with Writes, because here a Write completes at both ends.

With --perftest the other end is perftest itself: ib_write_bw -R and so on, over
iWARP, in either role. This was tried over Linux siw with Debian's 4.5+0.17, with
24.07, and with the sources of July 2026, whose exchanges have the versions 6.06,
6.22 and 6.29. Versions before 5.70, and from 7 on, are refused. The options are
not sent to perftest: give both ends the same -s, -n, -q, -r, -a, -b and -D. The
server of perftest prints what the client has measured, and so does this one.`

const pingManual = `For each ping the client offers memory, and the server reads it by an RDMA Read.
The client then offers other memory, and the server writes the data there by an
RDMA Write. The exchange is that of rping, so the other end may be rping.

The client starts the next ping when the previous one has ended, or every
--interval seconds. The last lines of the output are a summary. The exit code is 1
if the command is interrupted before -C pings, or as a server without -P.`

const showManual = `On a subject WHICH selects:
  devices      a name
  flows        an address, :port, address:port or an id
  qps, cqs     a number
  mrs          an STag
  queues, stats
               a device

The text of devices is as in rdma link, and with -v as in ibv_devinfo. The text
of flows is as in ss -tin, but the congestion window is in octets. instead_of is
the congestion control of the kernel, if stag does not have it and uses another.
The text of qps is as in rdma resource show; -v adds what each QP has moved. The
text of stats is as in ethtool -S; docs/counters.md says what each counter means.

Sizes are octets and are never rounded. Times in text are milliseconds, as in ss.
If a device is in another network namespace than the command, netns has the name
of that namespace, a process in it (pid:N), or its cookie.

The JSON is an array of flat objects. Each has pid, uid, program and adapter, which
are null if no engine runs the device. Members that begin with tcp_ have the state
of a connection. A counter is a member that is named after its layer and name.
With -w each line is an object with time and rows.

An empty result is not an error. An engine that does not answer within 2 seconds is
left out, and named on standard error. The exit code is then 1 if -p asked for that
engine. The reports of another user's engine cannot be verified; its uid comes from
the kernel.`

const unloadManual = `After --force the process that used the interface notices within a second, resets
its peers, and ends with an error if it is ping or perf. The leftovers of dead
processes, of interfaces that are gone, and of interrupted loads are removed even
without --force.`
