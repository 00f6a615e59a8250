// Package iscsi is an initiator of iSCSI (RFC 7143) whose data lands by tag: the Initiator
// Task Tag of a command is an entry of the adapter's table, and the target's octets go
// straight into the buffers of the command.
//
//	d, err := iscsi.Dial(ctx, "iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1", iscsi.Config{})
//	n, err := d.ReadAt(p, 0)
//	defer d.Close()
//
// A session outlives its connection. If the target restarts, or does not answer, commands
// wait: the session logs in again, makes sure that the unit is the same, and sends the
// commands again that had no status. Before, it resets a unit to which writes were under
// way, unless the target is known to end the old session by itself. Those that must not be executed twice
// complete with ErrUncertain. After Config.RecoveryTimeout the session is lost.
//
// A connection runs over an adapter of package rdma: over network ports, or over the
// kernel's TCP.
//
//	url.go               iscsi:// URLs
//	config.go            Config, errors
//	dial.go              from a URL to a session: connection, login, take-over
//	link.go              connections: a stream, or messages of RDMA (package iser)
//	session.go           a session: its resources, its end
//	connect.go, conns.go the connections of a session, and their logins
//	session_queue.go     a queue of slots over the connections
//	call.go              one command, and its answer
//	watch.go             the session's goroutine: events, time, answers
//	recover.go           the session's machine, and what it asks of the connection
//	reconnect.go         the next login, and the check that the unit is the same
//	owner.go             what the machine tells; events for the program
//	disk.go, diskio.go   a logical unit as a disk
//	traits.go            what a block device needs to know of a disk
//	queue.go             many commands: post, poll, wait
//
// A disk may have several paths (DialMultipath), each a session that ends with its
// connection. The commands outlive the sessions.
//
//	mpath.go             the disk: its paths and its queues
//	mpath_config.go      policies, and what the program learns of paths
//	mpath_path.go        a path: its sessions, and the check that the unit is the same
//	mpath_access.go      access states (ALUA), and the choice of a path
//	mpath_queue.go       commands, from the program to a path
//	mpath_outcome.go     what becomes of a command that a path has ended
//	mpath_repeat.go      repetition behind a reset of the unit
//	mpath_wait.go, mpath_call.go
//	                     waiting for completions
//	report.go            sessions and units of both roles in the adapter's report:
//	                     report_session.go, report_units.go
//
// The package is a target too: Serve makes backends (iscsi/backend) available as disks.
//
//	serve.go             Server: targets on a portal
//	serve_config.go      targets, logical units, access rules
//	serve_login.go       a connection, from accept to the take-over
//	serve_registry.go    which sessions there are, and who may do what
//	serve_session.go     a session of an initiator, and its connections
//	serve_join.go        connections that join a session
//	serve_discovery.go   discovery sessions
//	serve_work.go        goroutines for backends that block
//	serve_sanitize.go    sanitize operations, which go on behind their commands
package iscsi
