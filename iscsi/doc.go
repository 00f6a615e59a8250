// Package iscsi is an initiator of iSCSI (RFC 7143) whose data lands by tag: the Initiator
// Task Tag of a command is an entry of the adapter's table, and the target's octets go
// straight into the buffers of the command.
//
//	d, err := iscsi.Dial(ctx, "iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1", iscsi.Config{})
//	n, err := d.ReadAt(p, 0)
//	defer d.Close()
//
// A session outlives its connection. If the target restarts, or does not answer, commands
// wait: the session logs in again, makes sure that the unit is the same, resets it, and
// sends the commands again that had no status. Those that must not be executed twice
// complete with ErrUncertain. After Config.RecoveryTimeout the session is lost.
//
// A connection runs over an adapter of package rdma: over network ports, or over the
// kernel's TCP.
//
//	url.go               iscsi:// URLs
//	config.go            Config, errors
//	dial.go              from a URL to a session: connection, login, take-over
//	session.go           a session: its resources, its end
//	call.go              one command, and its answer
//	watch.go             the session's goroutine: events, time, answers
//	recover.go           the session's machine, and what it asks of the connection
//	reconnect.go         the next login, and the check that the unit is the same
//	owner.go             what the machine tells; events for the program
//	disk.go, diskio.go   a logical unit as a disk
//	queue.go             many commands: post, poll, wait
//
// The package is a target too: Serve makes backends (iscsi/backend) available as disks.
//
//	serve.go             Server: targets on a portal
//	serve_config.go      targets, logical units, access rules
//	serve_login.go       a connection, from accept to the take-over
//	serve_registry.go    which sessions there are, and who may do what
//	serve_session.go     a session of an initiator
//	serve_discovery.go   discovery sessions
//	serve_work.go        goroutines for backends that block
package iscsi
