package upgrade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/stag-rdma/stag/offload/control"
)

// fromVariable names the socket of the old process in the environment of the new one.
const fromVariable = "STAG_UPGRADE_FROM"

// Predecessor connects to the process that has started this one by Restart. It returns nil if
// none has. The variable is removed from the environment, so that children of this process do
// not see it.
func Predecessor(ctx context.Context) (*net.UnixConn, error) {
	path := os.Getenv(fromVariable)
	if path == "" {
		return nil, nil
	}
	if err := os.Unsetenv(fromVariable); err != nil {
		return nil, err
	}
	return Connect(ctx, path)
}

// Restart starts the program of this process once more, and calls hand with a connection to
// the new process, which gets its end from Predecessor. The new process has the same command
// line, environment, directory and standard files, and the program that is at the same path
// now.
//
// If hand fails, or the new process ends before hand has its connection, Restart waits for the
// end of the new process, and kills it if it does not end. hand must have made sure that the
// new process has no connection.
func Restart(ctx context.Context, hand func(context.Context, *net.UnixConn) (Result, error)) (Result, error) {
	path, err := socketPath()
	if err != nil {
		return Result{}, err
	}
	l, err := Listen(ctx, path)
	if err != nil {
		return Result{}, err
	}
	defer l.Close()
	program, err := os.Executable()
	if err != nil {
		return Result{}, fmt.Errorf("find the program to start again: %w", err)
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), fromVariable+"="+path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return Result{}, fmt.Errorf("start the new process: %w", err)
	}
	waiting, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	exit := make(chan struct{})
	go func() {
		defer close(exit)
		err := cmd.Wait()
		ended(fmt.Errorf("the new process has ended (%w): its standard error says why", exitOf(err)))
	}()
	r, err := accepted(waiting, l, hand)
	if err != nil {
		stop(cmd, exit)
		return r, err
	}
	if err := tellSystemd(cmd.Process.Pid); err != nil {
		r.Warnings = append(r.Warnings, err.Error())
	}
	return r, nil
}

// tellSystemd makes the new process the main process of the service. Otherwise systemd would
// take the end of this process for the end of the service. Without a socket for notifications
// tellSystemd does nothing.
func tellSystemd(pid int) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.Dial("unixgram", path) // package net knows names that begin with @
	if err != nil {
		return fmt.Errorf("tell systemd of the new process: %w", err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "MAINPID=%d", pid); err != nil {
		return fmt.Errorf("tell systemd of the new process: %w", err)
	}
	return nil
}

// accepted waits for the new process, and calls hand.
func accepted(ctx context.Context, l *net.UnixListener, hand func(context.Context, *net.UnixConn) (Result, error)) (Result, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, DefaultStart, errors.New("the new process has not connected in time"))
	defer cancel()
	c, err := Accept(waiting, l, nil)
	if err != nil {
		return Result{}, err
	}
	return hand(ctx, c)
}

var errClean = errors.New("exit status 0")

func exitOf(err error) error {
	if err == nil {
		return errClean
	}
	return err
}

// stop waits for the end of the new process, and kills it if it does not end.
func stop(cmd *exec.Cmd, exit chan struct{}) {
	select {
	case <-exit:
	case <-time.After(goneWait):
		cmd.Process.Kill()
		<-exit
	}
}

// socketPath returns the path of the socket for an upgrade of this process, in the directory of
// the control sockets. A file that is left from an earlier upgrade is removed.
func socketPath() (string, error) {
	near, err := control.Name(0)
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(near), fmt.Sprintf("upgrade-%d.sock", os.Getpid()))
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return path, nil
}
