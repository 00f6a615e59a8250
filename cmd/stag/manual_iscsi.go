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

A secret in a URL can be read by every user, in the list of processes. The command
then prints a warning. Use the environment, or a file. The file of --chap-file has
lines of three words, and the same file serves an initiator and a target:

  initiator USER SECRET
  target USER SECRET

An initiator logs in by the line of the USER in the URL, or by the only line with
initiator. If there is a line with target, the target must prove that secret. A
target accepts every initiator of the file. Only its owner may read the file (mode
600), and a secret has at least 12 octets.

With -i the connections of the interface are moved from the kernel into AF_XDP, and
data is placed by the Initiator Task Tag into the memory of its command. The other
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
Ctrl-C ends the command before -t, it prints what it has measured, and exits with 1.`

const iscsiTargetManual = `The target is an SPC-4 and SBC-3 disk: reads and writes of all lengths, VERIFY, WRITE
SAME, UNMAP, COMPARE AND WRITE, GET LBA STATUS, and persistent reservations, which
end with the process. RAM is lost when the command ends. A file or block device is
used past the page cache where the file system permits it. An NBD export is used
over one connection, which is made again when it is lost.

Initiators log in without a secret, unless --chap-file has lines with initiator. With
several --allow and --allow-from, an initiator must match one of each. With --digests
the target demands CRC32C for headers and data; else the initiator chooses.

The command prints what it serves when initiators can connect. At Ctrl-C it ends all
sessions, makes the disks stable, and exits with 0.`
