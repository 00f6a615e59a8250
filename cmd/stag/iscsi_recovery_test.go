package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/storage"
	"github.com/stag-rdma/stag/test/rig"
)

// TestISCSIRecovery: with --recovery a copy goes on when the target has come back, and no octet is wrong. Without it
// the copy ends with the connection.
func TestISCSIRecovery(t *testing.T) {
	for flag, well := range map[string]bool{"--recovery=1m": true, "": false} {
		t.Run(flag, func(t *testing.T) {
			disk := filepath.Join(t.TempDir(), "disk")
			rig.Must(t, os.WriteFile(disk, make([]byte, 8<<20), 0o600))
			target, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=file:"+disk)
			name, _ := randomFile(t, 8<<20)
			want, err := os.ReadFile(name)
			rig.Must(t, err)
			in, feed := io.Pipe()
			cmd := command(t, append([]string{"iscsi", "dd", "-", lun1(portal), "--bs", "64K"}, strings.Fields(flag)...)...)
			cmd.Stdin = in
			ended := make(chan result, 1)
			go func() { ended <- run(t, cmd) }()
			_, err = feed.Write(want[:4<<20])
			rig.Must(t, err)
			rig.Must(t, target.cmd.Process.Kill())
			target.rest()
			next, _ := targetAt(t, strings.TrimPrefix(portal, storage.Scheme), "--lun", "1=file:"+disk)
			go func() {
				feed.Write(want[4<<20:]) // the command may have ended
				feed.Close()
			}()
			r := <-ended
			in.Close()
			next.interrupt()
			got, err := os.ReadFile(disk)
			rig.Must(t, err)
			if (r.code == 0) != well || bytes.Equal(got, want) != well {
				t.Errorf("exit code %d, the same octets: %v; it printed %s%s", r.code, bytes.Equal(got, want), r.stdout, r.stderr)
			}
		})
	}
}
