package main

import "github.com/stag-rdma/stag/cmd/stag/internal/man"

// manual returns the annotation with the text that the manual page of a command has
// after the text of --help.
func manual(text string) map[string]string { return map[string]string{man.More: text} }

const doctorManual = `Rows are grouped by topic. The command prints the number of rows that are OK; with
-v or --json it prints every row. A row is FAIL if a requirement is not met. A row
is unknown if the command cannot check the requirement: the row says why, and what
to do. Neither a hint nor an unknown row changes the exit code. On a terminal the
words OK, hint, FAIL and unknown are coloured, unless NO_COLOR is set.`

const demoManual = `The kernels of the two namespaces open a TCP connection, which stag takes over at
both ends. RDMA Writes, RDMA Reads and Sends then move data through AF_XDP from the
memory of one end to the memory of the other. With -v the command also prints why
zero copy is not used.`

const demoISCSIManual = `The disk has the octets of --size, at most 256 MiB. More octets overwrite it several
times. After each round of writes side B compares its disk, and the reads compare
what arrives at side A.

The lies go over sockets of the kernel: a target at side B that serves side A's
initiator, and an initiator at side A that uses side B's target. A refused PDU is
counted by its reason, which stag show iscsi -v and stag metrics show, too. The
command goes on if the PDU belonged to no command. Otherwise it fails, because its
data can no longer be trusted. The memory of a canceled command is free at once.`

const demoFailoverManual = `Each host has its address on the loopback interface, and a route to the other over
each cable: the kernel prefers the first one. When the cable is pulled, both ends
lose their carrier. The kernel then ignores the routes over it, as with routing
daemons (ignore_routes_with_linkdown). Both ends of the connection follow the routes
over the other cable. When the cable is put back, they return. The veth pairs report
the loss of their carrier at once. The kernel may report that of a physical
interface up to a second late.

The table has the longest gap between two messages that the receiver has checked, for
each kind of event. The row none has the longest gap while nothing happened: a busy
machine causes gaps as well. For the kernel's TCP the gap is the time between two
reads. The kernel cannot drain a port. frozen is the longest time for which a move
stopped an end of the connection, and causes tells why the ends moved. --json has
each event.

An operation moves 16 MiB for each event, or more. If a move takes longer, the
operation moves more until the move has ended.`

const dumpManual = `Received packets are shown as they arrived. Sent packets are shown as they go on
the wire, with retransmissions and checksums. The command does not capture packets
of the kernel port: use tcpdump for them.

With -w the file has the direction, queue, flow and QP of each packet as a
comment, and the queue and the direction as fields. Wireshark finds RDMA only
after the MPA Request and Reply. The kernels exchange these before a connection
is taken over. Therefore -w writes two made-up packets, a Request and a Reply,
before the first packet of each connection. The comments of these two packets say
so, and -c does not count them. They are left out with --bare, and for a connection
with Markers. A connection of iSCSI needs none. Wireshark decodes short Sends as RPC: use
tshark --disable-protocol rpcordma.

If a connection moves from one port of its adapter to another, its next packet at
each of the two has a mark: "moved from eth1 to eth2 by drain, frozen for 412us". In
a file the mark is one more comment of the packet.

The time of a packet is the time at which the engine took it from the interface,
or had it ready to be sent. If a packet arrived while the engine slept or did
other work, the time in the file is later than the time on the wire.

The command captures on the engines that run when it starts. It does not see
engines that start later. When an engine ends, the command reports this on standard
error and continues with the other engines. The file contains the payload, so that
only its owner can read it.

An engine never waits for a capture. The buffer for a capture is up to 8 MiB for
each queue, and up to 64 MiB for each interface. Packets that do not fit are lost.
This happens if the command, or the reader of its output, is too slow. The last
line and the file have the number of lost packets. At most 8 captures can run on
one engine at the same time. Packets of several engines or interfaces are in the
order in which the engines handed them over.

The kinds for --kind are:
  write, read-request, read-response, send, terminate,
  immediate, atomic-request, atomic-response
          the header of the FPDU with which the segment begins; further FPDUs
          in the segment are not examined
  scsi-command, scsi-response, data-in, data-out, r2t, task, nop,
  login, text, logout, snack, async, reject
          the header of the iSCSI PDU with which the segment begins; a kind
          is a request or its answer. Further PDUs are printed if they were
          captured: the command looks at the first 256 octets of a packet
  ack     a segment without payload, also a FIN or RST
  data    payload that begins neither with an FPDU nor with a PDU, for example
          the rest of one
  icmp    a router's message that a packet was too big
  other   a packet that cannot be parsed

The command ends at Ctrl-C, after -c packets, when no engine is left, or when
nothing reads its output. It then prints how many packets it captured and lost.
It exits with 1 if an engine died, or if the output could not be written. The
packets that are in the file by then are complete.`

const drainManual = `A connection goes to the port through which the kernel's route leads, or else to
another port through which the peer can be reached. A connection that is made while
the kernel's route still leads through the drained port moves away at once. The
drained port stays open, because peers may send to it for ever. To take its cable
out, change their routes too, or the address.

Only the user of the process and root may drain its ports. An adapter has several
ports if its program opens several, such as stag perf -d eth1,eth2. If adapters in
several network namespaces have a port of the name, --pid and --adapter choose one.

While connections move, a line on standard error says now and then how many have
moved. After an interrupt no further connection moves, and the port stays drained.
The exit code is 0 if every connection has moved or ended, and 1 if one stays.`

const echoManual = `The address is printed to standard error. At the end the command prints how many
connections it has taken over, and how many octets it has sent back. After an upgrade
the old process prints what it has counted so far, and the new process counts on.

A connection that the peer does not read takes memory up to the connection's share,
and then its window closes. Do not offer the service to strangers: it sends whatever
it gets back to the address from which it seems to come.`

const upgradeManual = `The new process has the command line, the environment and the directory of the old one,
and the program that is at its path now. Install the new program by renaming it over
the old one. The old process ends when the new one has everything, and the new one is
a child of nobody. It prints to the same standard output and standard error.

Connections in every state go over, also half closed and in TIME-WAIT. The listening
socket goes over too: connections that the kernel accepts meanwhile wait for the new
process. The pause is the time for which no process runs the connections. Segments
that arrive in it are lost, and the peers send them again.

A process that cannot be upgraded says why. stag perf, ping and demo cannot, because a
measurement ends with its process. stag iscsi cannot, because its sessions belong to the
process. A program of your own can be upgraded, with its QPs and their memory, if it
sets Upgrade in the configuration of its adapter (docs/upgrade.md).

Only the user of the process and root may upgrade it.`

const loadManual = `If the process of an adapter is killed or crashes, the sockets of its queues are
gone, and no engine answers the peers of its connections. The program then drops
the segments of each connection for --orphan-wait, beginning with the first segment
that arrives. After that time the program passes the segments to the kernel. The
kernel does not know the connection, and resets the peer. A peer that sends is
reset at its first retransmission after that time. A silent peer is reset when it
sends data or a keepalive probe. If another process adopts the program before that
time ends, the peers are reset at once. An engine that is slow or stopped keeps its
sockets and its connections.

By default each interface is an instance of its own, named after the interface.
Interfaces with the same --instance belong to one instance, and one adapter can use
all of them. The interfaces of an instance share one table of connections, which
can be read while the adapter runs.

Plain --tune turns off the offloads that stag cannot work with. --tune=throughput
also moves NAPI into kernel threads, so that another processor than the engine's
receives packets. A single message then waits for such a thread: more than 100 us
on a small machine. --tune=latency moves NAPI out of kernel threads. --tune changes
neither the number of queues nor the MTU. /run/stag has the previous settings.

If the interface is already loaded with the same settings, the command attaches
nothing and exits with 0. It still changes the settings that --tune asks for.`

const metricsManual = `An engine that does not answer within 2 s is left out, and its stag_engine_up is 0.
If node_exporter has a node_infiniband_ metric of the same meaning, the metric here
has the same name.

There is neither encryption nor a password. Listen at an address that is not a
loopback address only if everyone who can reach it may read the metrics.`

const perfManual = `The command differs from perftest in three ways:
  1. A process that waits for a completion polls for about 40 us and then sleeps.
     While it polls, it does the work of the connection. Longer polling would take
     the processor from other processes, perhaps from the other end of the test.
  2. -D can be used with -a and -e, and its rows of latencies have all columns.
  3. -e can be used with Writes. A Send follows the Writes, so that both ends get a
     completion.

-d takes several interfaces with commas between them, and --device is another name
of -d. They are the ports of one adapter. A connection moves between them with the
kernel's route, or by stag drain.

With --perftest the other end is a program of perftest, such as ib_write_bw -R, over
iWARP. The command can be its client or its server. This was tested over Linux siw
with perftest 4.5+0.17 of Debian, with 24.07, and with the sources of July 2026. The
versions of their exchanges are 6.06, 6.22 and 6.29. A version below 5.70, or of 7
or more, is refused. The exchange does not contain the options: give both ends the
same -s, -n, -q, -r, -a, -b and -D. With --perftest a server prints what the client
has measured, as the server of perftest does.`

const pingManual = `For each ping the client offers memory, and the server reads it by an RDMA Read.
The client then offers other memory, and the server writes the data there by an
RDMA Write. The exchange is that of rping, so the other end may be rping.

-i takes several interfaces with commas between them, and --device is another name
of -i. They are the ports of one adapter. A connection moves between them with the
kernel's route, or by stag drain.

The client starts the next ping when the previous one has ended, or every
--interval seconds. The last lines of the output are a summary. The exit code is 1
if an interrupt ends the command before there is a connection or before -C pings.
The exit code is also 1 if an interrupt ends a server without -P before its client
has left.`

const showManual = `WHICH selects the rows of a subject by:
  devices      a name
  flows        an address, :port, address:port or an id
  qps, cqs, srqs
               a number
  mrs          an STag
  queues, stats, ports
               a device
  iscsi        the number of a session, or a part of a name of either end
  luns         the number of a unit, or a part of its target's name

The text of devices is as in rdma link, and with -v as in ibv_devinfo. The text
of flows is as in ss -tin, but the congestion window is in octets. instead_of names
the kernel's congestion control of the connection. It is printed only if stag does
not implement that congestion control and uses another one. The text of qps is as
in rdma resource show; -v adds what each QP has moved. The text of stats is as in
ethtool -S; docs/counters.md says what each counter means.

A row of flows says "arrives eth2 97%" if 97 of 100 of the last segments, of about
1024, arrived at eth2, another port of the adapter. A row of ports is a port of an
adapter: up, down (no link), lost (for good) or drained (stag drain). A port of a
group may also be probing, suspect, failed, or settling after a failure. foreign has
how many of the last segments of its connections arrived at other ports. in, out and
failed count the connections that came, left, and could not leave. A move follows the
kernel's route (route), or has one of these causes: asked (by the program), carrier,
lost, drain, or failed (nothing passed the port).

A row of iscsi is a session of an initiator or a target of this process. cmds has
the commands in progress and how many may be. The next lines have the names, the
connection, and the commands in progress by age; -v adds what was moved, why PDUs
were refused, and how long commands took. A row of luns is a unit that a target
serves or that an initiator uses, with its size in octets, medium and reservation.
A program sees its sessions if its adapter has a control socket: those of stag iscsi
have one. An adapter that package iscsi opens itself has none.

Sizes are octets and are never rounded. Times in text are milliseconds, as in ss.
If a device is in another network namespace than the command, netns has the name
of that namespace, a process in it (pid:N), or its cookie.

The JSON is an array of flat objects. Each object has pid, uid, program and adapter.
These are null if no engine runs the device. Members that begin with tcp_ have the
state of a connection. The name of a counter's member is the layer and the name of
the counter. With -w each line is an object with time and rows.

An empty result is not an error. An engine that does not answer within 2 seconds is
left out, and named on standard error. The exit code is then 1 if -p asked for that
engine. The reports of another user's engine cannot be verified, except the uid,
which comes from the kernel.`

const unloadManual = `After --force the process that used the interface notices the loss within a second
and resets its peers. stag ping and stag perf then end with an error. Even without
--force the command removes what dead processes, interfaces that no longer exist,
and interrupted loads have left.`

const daemonManual = `Programs find the socket by the variable STAG_DAEMON, or at /run/stag/stagd.sock. Users
of the group may connect (mode 0660). Without a group only the user of the daemon may.
A daemon started by systemd takes the socket of the unit stagd.socket.

A limit of --quota is for one program at a time. A program that wants more gets EDQUOT or
ENOMEM, and -v logs that. The letters K, M and G multiply by powers of 1024.

stag show clients lists the programs. stag show qps, stag dump and stag metrics show their
connections. The programs cannot name each other's memory, queues or connections. If the
daemon ends, the connections of all programs end.`

const runManual = `The libraries are looked for in $STAG_VERBS, in verbs/ beside the program stag, in
../lib/stag from there, in /usr/local/lib/stag and in /usr/lib/stag. The program gets
LD_LIBRARY_PATH, STAG_DAEMON and STAG_PERSONALITY, and so do the programs that it starts.

Other programs can use the new daemon too, also those of another stag run. It ends when
the last of them has ended. With --carrier kernel and without --socket, the new daemon is for
this program and its children only.

The daemon is no child of the program. The program keeps all its rights. With the
personality roce, root's program also gets mounts of its own, with the character device
/dev/infiniband/stag0, because UCX uses no device without one.`
