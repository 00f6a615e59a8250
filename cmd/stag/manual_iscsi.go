package main

const iscsiManual = `The URL of a disk is that of libiscsi:

  iscsi://[USER[%SECRET]@]HOST[:PORT]/TARGET/LUN[?ARGUMENT=VALUE&...]

A portal is the same without TARGET and LUN. The port is 3260 by default. An IPv6
address stands in brackets. The arguments are:
  header_digest, data_digest
                 crc32c, none, or both by comma, the preferred one first
  auth           the hash of CHAP: md5, sha1, sha-256 or sha3-256
  target_user, target_password
                 the name and secret that the target must prove
  connections    1 to 16: the TCP connections of the session, if the target permits
                 as many
  path           HOST[:PORT]: another portal of the target; may be repeated. Commands
                 go over all paths, and over the others when one dies
  policy         round-robin, queue-depth or failover: the path that a command takes

A URL that begins with iser:// is for iSER (RFC 7145): iSCSI over RDMA. The target
moves the data by RDMA Write and Read. Such a connection has no digests.

A secret in a URL can be read by every user, in the list of processes. The command
then prints a warning. Use the environment, or a file. The file of --chap-file has
lines of three words, and the same file serves an initiator and a target:

  initiator USER SECRET
  target USER SECRET

An initiator logs in by the line of the USER in the URL, or by the only line with
initiator. If there is a line with target, the target must prove that secret. A
target accepts every initiator of the file. Only its owner may read the file (mode
600), and a secret has at least 12 octets.

With -i the connections of the interfaces are moved from the kernel into AF_XDP (-i
eth1,eth2 are two ports of one adapter; --device is another name of -i), and data is
placed by the Initiator Task Tag into the memory of its command. The other
end may be any initiator or target. Without -i nothing needs rights.`

const iscsiCopyManual = `The copy goes in order. --bs is the length of one read or write, a multiple of the
disks' blocks, and --depth is how many are in flight at each end. A disk reads and
writes whole blocks, so the length of a copy must be a multiple of its blocks. A file
that is not as long can be made longer by truncate -s.

If TO is a file, it is made, or cut to length 0 unless --seek is given. When an error
or Ctrl-C ends the copy, the error says how many octets were copied, and TO keeps
them. If TO is the standard output, the result goes to standard error. On a terminal
the progress is a bar. With --progress it is a line for each tenth elsewhere.`

const iscsiPerfManual = `The last lines are those of iscsi-perf, then the latencies from the post of a command
to its completion, and how much of the processors was busy: this process with its
system calls, and the whole machine with all processes and the kernel. 100% is one
processor. The load of interrupts is in the second figure only.

A command begins when another one has completed, so that -m commands are always in
flight. Without -r the commands go through the disk in order, and begin again at its
end. If standard error is a terminal, it shows the present rates every second. If
Ctrl-C ends the command before -t, it prints what it has measured, and exits with 1.
With several paths, --json shows the state of each path at the end.`

const iscsiTargetManual = `The target is an SPC-4 and SBC-3 disk: reads and writes of all lengths, VERIFY, WRITE
SAME, UNMAP, COMPARE AND WRITE, GET LBA STATUS, and persistent reservations. With
--reservations DIRECTORY, reservations that an initiator registers with APTPL are kept
there, in a file for each LUN, and the next target of the same name has them; else
reservations end with the command. RAM is lost when the command ends. A file or block device is
used past the page cache where the file system permits it. An NBD export is used
over one connection, which is made again when it is lost.

Initiators log in without a secret, unless --chap-file has lines with initiator. With
several --allow and --allow-from, an initiator must match one of each. With --digests
the target demands CRC32C for headers and data; else the initiator chooses.

With --iser, initiators connect by RDMA (iSER, RFC 7145): data moves by RDMA Write and
RDMA Read of the target. The target, its disks, rules and secrets are the same. TCP and
iSER need different ports or addresses: --portal :3260 --iser :3261. Initiators are
stag, open-iscsi and libiscsi over iWARP.

With several --portal, initiators reach the disks over several paths (MPIO): --portal
192.0.2.1 --portal 198.51.100.1. A discovery tells the portals of its own kind.

The command prints what it serves when initiators can connect. At Ctrl-C it ends all
sessions, makes the disks stable, and exits with 0.`

const iscsiLocalManual = `Requests of the block device or of the NBD client are commands of the iSCSI session:
reads and writes, flushes, FUA, discards and writes of zeros, as far as the unit has
them. If the connection to the target is lost, requests wait, and the session logs in
again. After --recovery they fail with an I/O error, and the command ends.

The command stays in the foreground, and says on standard error when a connection is
lost and when it is back. stag iscsi attach writes a file in /run/stag/attach, by which
stag iscsi detach finds it. If it is killed, the kernel ends the device: programs that
use it get I/O errors, and no device hangs.

Block devices of processes need a driver of the kernel: ublk (module ublk_drv, Linux
6.5 or later) or nbd (module nbd). The command loads the module. stag iscsi nbd needs
neither.`
