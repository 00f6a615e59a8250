package main

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"os"
	"path/filepath"
	"testing"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
)

// spoiler is a hash that changes the chunk as soon as it has read the chunk, as a faulty
// sender can.
type spoiler struct {
	hash.Hash
	chunk []byte
}

func (s spoiler) Write(p []byte) (int, error) {
	n, err := s.Hash.Write(p)
	for i := range s.chunk {
		s.chunk[i] ^= 0xff
	}
	return n, err
}

// TestChunkWrittenTwice: the checksum is that of the octets in the file, also if the
// sender writes to a chunk again after it has announced the chunk.
func TestChunkWrittenTwice(t *testing.T) {
	a, err := rdma.Open(rdma.Config{KernelPort: true})
	rig.Must(t, err)
	defer a.Close()
	ep, err := a.CreateEndpoint(rdma.EndpointConfig{Size: chunks * chunkLen})
	rig.Must(t, err)
	file, err := os.Create(filepath.Join(t.TempDir(), "copy"))
	rig.Must(t, err)
	defer file.Close()
	const n = 1000
	sum := sha256.New()
	r := &receiver{ep: ep, file: file, sum: spoiler{sum, ep.MR.Bytes()[:n]}}
	rig.Must(t, r.chunk(n))
	got, err := os.ReadFile(file.Name())
	rig.Must(t, err)
	if want := sha256.Sum256(got); len(got) != n || !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Errorf("%d octets are in the file, and the checksum is that of others", len(got))
	}
}

// TestUnfinishedFile: a file that cannot be closed does not get its name. The test uses a
// file that is already closed.
func TestUnfinishedFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "copy")
	file, err := os.Create(name + ".part")
	rig.Must(t, err)
	rig.Must(t, file.Close())
	if err := finish(file, name); err == nil {
		t.Error("the error of Close is lost")
	}
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Errorf("the file has its name: %v", err)
	}
}
